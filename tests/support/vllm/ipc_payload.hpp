// The unpickled CUDA IPC payload of one worker: what torch's rebuild_cuda_tensor would be called with. There is no GPU:
// a memory handle whose 64 bytes are the text of a shared arena's handle (weights/shared_arena.hpp, NULs after it) is
// opened as host memory, any other is refused as CUDA refuses a handle that it does not know.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "support/vllm/flavour.hpp"
#include "support/vllm/pickle_reader.hpp"
#include "tensor/tensor.hpp"
#include "weights/arena.hpp"

namespace vime::stand_in {

struct IpcTensor {
  tensor::TensorInfo info;  // without a name
  const std::byte* data = nullptr;
  std::shared_ptr<weights::Mapping> memory;  // keeps data
};

// The worker's entry of {uuid: value}. WorkerError in Python's, torch's and vLLM's words for a missing uuid, a value
// of another release's form, an argument of a wrong type, a handle that is none, memory that is too small.
IpcTensor open_ipc_tensor(const PickleValue& handles, const std::string& uuid, const Flavour& flavour);

}  // namespace vime::stand_in
