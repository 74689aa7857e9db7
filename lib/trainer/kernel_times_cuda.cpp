#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>

#include "gpu/device.hpp"
#include "trainer/kernel_times.hpp"

namespace vime::trainer {

std::vector<KernelTime> kernel_times(const std::function<void()>& work) {
  namespace profiler = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<torch::profiler::impl::ActivityType> kinds = {torch::profiler::impl::ActivityType::CUDA};
  profiler::prepareProfiler(config, kinds);
  profiler::enableProfiler(config, kinds);
  work();
  gpu::synchronize();
  const auto result = profiler::disableProfiler();
  std::map<std::string, KernelTime> by_name;
  for (const profiler::KinetoEvent& event : result->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;
    KernelTime& time = by_name[event.name()];
    time.name = event.name();
    ++time.calls;
    time.milliseconds += static_cast<double>(event.durationNs()) / 1e6;
  }
  std::vector<KernelTime> times;
  for (const auto& [name, time] : by_name) times.push_back(time);
  std::sort(times.begin(), times.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.milliseconds > b.milliseconds; });
  return times;
}

}  // namespace vime::trainer
