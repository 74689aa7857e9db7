// CUDA's own copies, which pushes are measured against, and memory to measure them with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vime::gpu {

// The quickest of `repeat` calls of cudaMemcpyAsync from device to device, by the GPU's clock, after one to warm up.
double quickest_copy_ms(const std::byte* from, std::byte* to, uint64_t bytes, int repeat);

// Random bytes, others for every seed. Blocks.
void fill_random(std::byte* memory, uint64_t bytes, uint64_t seed);

}  // namespace vime::gpu
