// Which kernels ran on the GPU and for how long, by LibTorch's profiler.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace vime::trainer {

struct KernelTime {
  std::string name;
  int64_t calls = 0;
  double milliseconds = 0.0;
};

// Of everything that `work` gives to the GPU, the longest first. Empty without CUDA.
std::vector<KernelTime> kernel_times(const std::function<void()>& work);

}  // namespace vime::trainer
