// The workers' side of /init_weight_transfer_engine .. /finish_weight_update: vLLM's order of calls and error texts,
// the strict reading of init_info and update_info, and the bytes' way into the model. Owned by the engine's thread;
// init and update block for the trainer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "support/vllm/collective.hpp"
#include "support/vllm/flavour.hpp"
#include "support/vllm/layer_load.hpp"
#include "support/vllm/trace.hpp"

namespace vime::stand_in {

struct TransferOptions {
  std::string backend;  // "", nccl, ipc, ...
  std::vector<std::string> uuids;
  bool insecure_serialization = false;
};

// How the tensors of one or all updates are packed.
struct Packing {
  bool packed = false;
  uint64_t buffer_bytes = uint64_t{1} << 30;
};

class Transfer {
 public:
  Transfer(const Flavour& flavour, TransferOptions options, LayerLoad& load, Trace& trace);

  void init(const Json& info);
  void start(LoadFault fault);
  void update(const Json& info);
  void finish();
  // What a worker does when an update raises.
  void update_raised();
  bool is_active() const { return active_; }

 private:
  void check_configured() const;
  void init_nccl(const Json& info);
  void update_nccl(const Json& info);
  void update_ipc(const Json& info);
  void take_packed(const std::vector<tensor::TensorInfo>& tensors, const std::vector<std::byte>& bytes,
                   std::size_t first, std::size_t count);
  void receive_packed(const std::vector<tensor::TensorInfo>& tensors, uint64_t buffer_bytes);

  const Flavour& flavour_;
  TransferOptions options_;
  LayerLoad& load_;
  Trace& trace_;
  std::unique_ptr<Collective> group_;
  Packing packing_;  // said at init, in releases that do
  bool active_ = false;
};

}  // namespace vime::stand_in
