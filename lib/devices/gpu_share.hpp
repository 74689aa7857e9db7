// Several devices on one GPU, so that layouts can be tried on fewer GPUs than they have devices. Each is a share of the
// GPU: its processes take turns with those of the other shares, and take no more than an equal part of the memory.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "devices/devices.hpp"

namespace vime::devices {

// One of `of` shares of the GPU with this UUID; the whole GPU where `of` is 1.
struct GpuShare {
  std::string gpu;
  int index = 0;
  int of = 1;
  bool operator==(const GpuShare&) const = default;
};

// The UUID of the device: the GPU's own, or "<the GPU's>/<index>of<of>".
std::string device_uuid(const GpuShare& share);
// Its inverse; any other text is the UUID of a whole GPU.
GpuShare share_of(const std::string& device_uuid);

// Every GPU as `per_gpu` devices: the first share of each, then the second of each and so on, so that few devices are
// on GPUs of their own as far as these go.
Inventory divide(const Inventory& machine, int per_gpu);

// More have no room on a GPU: each is two processes, of half a gigabyte at the least.
inline constexpr int kMostPerGpu = 64;
// What there is, for refusals: "1 GPU", "2 GPUs for 8 devices".
std::string count_text(std::size_t gpus, std::size_t devices);
// The cure where `gpus` are too few for so many devices: "with <option> 4 they share GPUs", or "" where they would be
// too many on one.
std::string cure_by_sharing(const std::string& option, std::int64_t devices, std::size_t gpus);

}  // namespace vime::devices
