// The Python objects that vLLM's servers unpickle, written as bytes: NCCL's unique id, and the handles of device memory
// that PyTorch's rebuild_cuda_tensor opens. Protocol 3, whose opcodes every Python 3 reads; no memo, no Python here.
// Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"
#include "vllm/bodies.hpp"
#include "vllm/dialect.hpp"

namespace vime::vllm {

// What the store's key kUniqueIdKey has to hold: vLLM's own ncclUniqueId, 223 bytes.
std::string unique_id_pickle(const NcclUniqueId& id);

// A place in the memory of one device, as its owner exports it. The memory comes from plain cudaMalloc, is written and
// synchronised before the request, and stays until the server answered the request (packed) or /finish_weight_update
// (tensor by tensor).
struct DevicePlace {
  std::string device_uuid;                // "8f0c8d35-1c2e-...": lower case, 8-4-4-4-12, no "GPU-"
  std::array<std::byte, 64> handle = {};  // cudaIpcMemHandle_t of the whole allocation
  uint64_t offset = 0;                    // bytes from the allocation's start
};

// One entry for each worker of a server. Every worker takes the entry of its own device; the bytes behind all are
// equal. Error{refused} when there is none, or two for one device.
using DevicePlaces = std::vector<DevicePlace>;

// {uuid: arguments}: a buffer of `bytes` bytes with tensors one after the other (vllm/packed_chunks.hpp).
std::string packed_ipc_pickle(const DevicePlaces& workers, uint64_t bytes);

struct PlacedTensor {
  tensor::TensorInfo info;
  DevicePlaces workers;
};
// [{uuid: arguments}, ...] in the order of the request's names; each value in the form that the dialect reads. A worker
// takes two tensors at the same place for one, so places do not repeat within a session.
std::string tensors_ipc_pickle(const Dialect& dialect, std::span<const PlacedTensor> tensors);

}  // namespace vime::vllm
