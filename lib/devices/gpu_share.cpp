#include "devices/gpu_share.hpp"

#include <charconv>
#include <optional>
#include <string_view>

namespace vime::devices {
namespace {

constexpr std::string_view kOf = "of";

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string device_uuid(const GpuShare& share) {
  if (share.of == 1) return share.gpu;
  return share.gpu + "/" + std::to_string(share.index) + std::string(kOf) + std::to_string(share.of);
}

GpuShare share_of(const std::string& device_uuid) {
  const std::string_view text = device_uuid;
  const size_t slash = text.find('/');
  const size_t word = slash == std::string_view::npos ? slash : text.find(kOf, slash);
  if (word == std::string_view::npos) return {device_uuid, 0, 1};
  const std::optional<int> index = number(text.substr(slash + 1, word - slash - 1));
  const std::optional<int> of = number(text.substr(word + kOf.size()));
  if (!index || !of || *of < 2 || *index < 0 || *index >= *of) return {device_uuid, 0, 1};
  const GpuShare share{device_uuid.substr(0, slash), *index, *of};
  return devices::device_uuid(share) == device_uuid ? share : GpuShare{device_uuid, 0, 1};
}

Inventory divide(const Inventory& machine, int per_gpu) {
  Inventory devices{{}, machine.reason};
  for (int index = 0; index < per_gpu; ++index) {
    for (Gpu gpu : machine.gpus) {
      gpu.uuid = device_uuid({gpu.uuid, index, per_gpu});
      gpu.memory_bytes /= static_cast<uint64_t>(per_gpu);
      devices.gpus.push_back(std::move(gpu));
    }
  }
  return devices;
}

std::string count_text(size_t gpus, size_t devices) {
  return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs") +
         (devices == gpus ? "" : " for " + std::to_string(devices) + " devices");
}

std::string cure_by_sharing(const std::string& option, int64_t devices, size_t gpus) {
  const auto there = static_cast<int64_t>(gpus);
  const int64_t each = (devices + there - 1) / there;
  return each > kMostPerGpu ? "" : "with " + option + " " + std::to_string(each) + " they share GPUs";
}

}  // namespace vime::devices
