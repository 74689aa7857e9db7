// The device that this process computes on, as LibTorch sees it, and LibTorch's own memory on it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "gpu/stream.hpp"

namespace vime::model {

// "cpu", or the GPU with this UUID ("cuda"), or the share of one, which becomes the calling thread's; LibTorch then
// takes no more than that share of the memory. Before anything else touches CUDA. Error{refused} where there is no such
// GPU, or where this vime cannot drive one.
torch::Device select_torch_device(const std::string& device, const std::string& uuid);

// Of LibTorch's caching allocator on the calling thread's GPU; zeros on the CPU. Arenas are not in it.
struct TorchMemory {
  uint64_t used_bytes = 0, peak_used_bytes = 0;  // handed out to tensors
};
TorchMemory torch_memory(torch::Device device);
void reset_peak_memory(torch::Device device);
// Gives back to the device what no tensor uses.
void release_cached_memory(torch::Device device);
gpu::Stream current_stream(torch::Device device);  // LibTorch's, of the calling thread
// Blocks until the GPU has done everything that was given to it.
void synchronize(torch::Device device);

}  // namespace vime::model
