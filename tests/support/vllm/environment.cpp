#include "support/vllm/environment.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/strings.hpp"

namespace vime::stand_in {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string default_uuid(int device) {
  const std::string digits = std::to_string(device);
  return "57a4d100-0000-4000-8000-" + std::string(12 - digits.size(), '0') + digits;
}

bool is_index(const std::string& text) {
  return !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.dev_mode = variable("VLLM_SERVER_DEV_MODE") == "1";
  environment.insecure_serialization = variable("VLLM_ALLOW_INSECURE_SERIALIZATION") == "1";
  environment.visible_devices = variable("CUDA_VISIBLE_DEVICES");
  environment.python_path = variable("PYTHONPATH");
  environment.flavour = variable("VIME_STAND_IN_VERSION");
  environment.uuids = variable("VIME_STAND_IN_UUIDS");
  environment.trace = variable("VIME_STAND_IN_TRACE");
  environment.engine_process = variable("VIME_STAND_IN_ENGINE_PROCESS") == "1";
  environment.step_ms = std::atoi(variable("VIME_STAND_IN_STEP_MS").c_str());
  environment.fault = variable("VIME_STAND_IN_FAULT");
  return environment;
}

std::vector<std::string> worker_uuids(const Environment& environment, const ServeArguments& arguments) {
  const auto count = static_cast<std::size_t>(arguments.workers());
  std::vector<std::string> machine;
  if (!environment.uuids.empty()) machine = split(environment.uuids, ',');
  std::vector<std::string> visible;
  if (environment.visible_devices.empty()) {
    for (std::size_t i = 0; i < std::max(machine.size(), environment.uuids.empty() ? count : 0); ++i)
      visible.push_back(i < machine.size() ? machine[i] : default_uuid(static_cast<int>(i)));
  } else {
    for (const std::string& device : split(environment.visible_devices, ',')) {
      if (!is_index(device)) {
        visible.push_back(device.starts_with("GPU-") ? device.substr(4) : device);
        continue;
      }
      const auto index = static_cast<std::size_t>(std::atoi(device.c_str()));
      if (index < machine.size() || environment.uuids.empty())
        visible.push_back(machine.empty() ? default_uuid(static_cast<int>(index)) : machine[index]);
    }
  }
  if (visible.size() < count) {
    throw Error(ErrorKind::refused, "World size (" + std::to_string(count) +
                                        ") is larger than the number of available GPUs (" +
                                        std::to_string(visible.size()) + ") in this node.");
  }
  visible.resize(count);
  return visible;
}

bool has_module(const std::string& python_path, const std::string& name) {
  for (const std::string& folder : split(python_path, ':')) {
    if (folder.empty()) continue;
    if (fs::exists(fs::path(folder) / (name + ".py")) || fs::exists(fs::path(folder) / name / "__init__.py"))
      return true;
  }
  return false;
}

}  // namespace vime::stand_in
