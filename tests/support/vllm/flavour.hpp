// What one vLLM release does differently from the others, as far as a client can see. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace vime::stand_in {

struct Flavour {
  std::string version;               // what GET /version says
  bool start_needs_body = false;     // 0.21 to 0.24: JSON, {} at least; their finish has another error text, and the
                                     // active flag survives an update that raised
  bool handle_has_function = false;  // until 0.21: an IPC value is (rebuild_cuda_tensor, args), later args alone
  bool packed_ipc = true;            // from 0.22: all tensors in one buffer
  bool ipc_imports_ray = false;      // 0.22 to 0.26
  bool ipc_packed_in_init = false;   // from 0.27: what older ones take with every update is said once
  bool nccl_packed_in_init = false;  // likewise, from 0.28
  bool knows_update_kind = false;    // 0.23 and 0.24
  bool knows_sparse = false;         // from 0.25: backend sparse_nccl
  bool aborts_and_drafts = false;    // from 0.26: /abort_requests, /start_draft_weight_update
  bool takes_unique_id = false;      // from 0.30: NCCL's id in init_info instead of a store's address
  bool has_versions = false;         // from 0.27: /weight_info, /update_weight_version, weight_version in finish
  bool newest_generate = false;      // /inference/v1/generate behind a flag, integer ids and version spans in it
  int64_t generate_max_tokens = 0;   // of a request that names none; 0: what fits
  int highest_handle_version = 2;    // of a sharable memory handle: 3 from torch 2.13 on
};

// G2a, G2b, G2c, G3, or a version text, which is claimed as given: its release behaves as its number says, an unknown
// one as the newest.
Flavour flavour_of(const std::string& name);

}  // namespace vime::stand_in
