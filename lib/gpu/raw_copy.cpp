#include "gpu/raw_copy.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "gpu/check.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/streams.hpp"

namespace vime::gpu {

double quickest_copy_ms(const std::byte* from, std::byte* to, uint64_t bytes, int repeat) {
  const OwnedStream stream;
  Event begin(true), end(true);
  double quickest = 0;
  for (int i = -1; i < repeat; ++i) {
    begin.record(stream.get());
    VIME_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.get()));
    end.record(stream.get());
    stream.synchronize();
    const double ms = end.since(begin);
    if (i >= 0) quickest = i == 0 ? ms : std::min(quickest, ms);
  }
  return quickest;
}

void fill_random(std::byte* memory, uint64_t bytes, uint64_t seed) {
  // One block from the host, then its parts at odd places, so that no two stretches of the memory are alike for long.
  constexpr uint64_t kMostWords = uint64_t{1} << 21;
  std::vector<uint64_t> words(std::min(kMostWords, bytes / sizeof(uint64_t) + 2));
  for (uint64_t i = 0; i < words.size(); ++i) words[i] = mix_key(seed, i);
  const DeviceMemory block(words.size() * sizeof(uint64_t));
  VIME_CUDA(cudaMemcpy(block.data(), words.data(), block.bytes(), cudaMemcpyHostToDevice));
  uint64_t at = 0;
  for (uint64_t turn = 0; at < bytes; ++turn) {
    const uint64_t skip = mix_key(seed, turn) % (block.bytes() / 2) / 8 * 8;
    const uint64_t count = std::min(block.bytes() - skip, bytes - at);
    VIME_CUDA(cudaMemcpyAsync(memory + at, block.data() + skip, count, cudaMemcpyDeviceToDevice));
    at += count;
  }
  synchronize();
}

}  // namespace vime::gpu
