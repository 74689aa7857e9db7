// What one release of vLLM's server understands, chosen from the text of GET /version. vLLM refuses a request that has
// one key too many, so every body is built for the release that gets it (vllm/bodies.hpp). Pure.
#pragma once

#include <string>

namespace vime::vllm {

// How weights travel. Releases before 0.21 take a model in one single request and are refused.
enum class Generation {
  g2a,  // 0.21: start, updates, finish; IPC values are (function, arguments)
  g2b,  // 0.22 to 0.24: IPC values are the arguments; IPC by a packed buffer
  g2c,  // 0.25, 0.26: start needs no body
  g3,   // 0.27 on: finish takes the version of the weights
};
const char* generation_name(Generation generation);  // "G2a"

struct Dialect {
  std::string version;  // as the server says it
  Generation generation = Generation::g3;
  // The release is newer than all that vime knows; it is spoken to like the newest of those.
  bool newer_than_known = false;

  // Control routes
  bool start_needs_body = false;            // /start_weight_update answers 400 without a JSON body
  bool start_takes_raw_weights = false;     // "is_checkpoint_format": false in that body
  bool failed_update_ends_session = false;  // after a failed update the server is ready for another start
  bool finish_takes_version = false;        // "weight_version"; GET /weight_info and /update_weight_version exist too
  bool aborts_all_requests = false;         // /abort_requests with {}
  bool shuts_transfer_down = false;         // /shutdown_weight_transfer_engine
  bool has_weight_checker = false;          // /weight_checker
  bool pause_refuses_requests = false;      // while paused by abort or wait a new request gets 503, and is not queued

  // CUDA IPC
  bool ipc_value_has_function = false;  // (rebuild function, arguments) for each worker, not the arguments alone
  bool ipc_takes_packed = false;        // one buffer with many tensors
  bool ipc_packed_in_init = false;      // "packed" belongs to init_info, not to update_info
  bool ipc_imports_ray = false;         // the server does not start with this backend where no module `ray` is found

  // NCCL
  bool nccl_packed_in_init = false;   // "packed" and the buffer's size belong to init_info
  bool nccl_takes_unique_id = false;  // "nccl_unique_id_b64" in init_info instead of a store's address
  bool packed_takes_scalars = false;  // of both transports: tensors without dimensions, in a packed buffer

  // Rollouts
  bool generate_needs_flag = false;      // /inference/v1/generate only with --enable-scale-out, which older ones refuse
  bool generate_tells_versions = false;  // its choices carry "weight_versions"
  bool generate_logprobs_by_id = false;  // its log-probs carry "token_id": 7, not "token": "token_id:7"
};

// version: "0.25.1", "0.26.0rc1", "0.25.1.dev3+gabc.cu130", "v0.27.0", "1.0.0". Throws Error{refused} for text that is
// no version and for releases before 0.21.
Dialect dialect_of(const std::string& version);

}  // namespace vime::vllm
