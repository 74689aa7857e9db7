// The memory of a worker's weights, in the host or on its GPU. The addresses stay through sleep and wake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace vime::executor {

class WeightMemory {
 public:
  virtual ~WeightMemory() = default;
  virtual std::byte* data() const = 0;
  // Level 1 keeps the contents and frees a GPU's memory, level 2 and above drops the contents.
  virtual void sleep(int level) = 0;
  // Error{exhausted} when another process has taken the memory meanwhile.
  virtual void wake() = 0;
};

std::unique_ptr<WeightMemory> make_host_weights(uint64_t bytes);
// On the calling thread's GPU.
std::unique_ptr<WeightMemory> make_gpu_weights(uint64_t bytes);

}  // namespace vime::executor
