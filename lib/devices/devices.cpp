#include "devices/devices.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>

#include "base/hex.hpp"

namespace vime::devices {
namespace {

// The few calls of the CUDA driver API (cuda.h of CUDA 13) that are needed. None of them makes a context.
struct CudaUuid {
  unsigned char bytes[16];
};
using Result = int;  // CUresult; 0 is success
constexpr Result kNoDevice = 100;
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

struct Driver {
  Library library;
  Result (*init)(unsigned flags) = nullptr;
  Result (*error_string)(Result, const char**) = nullptr;
  Result (*count)(int*) = nullptr;
  Result (*get)(int* device, int ordinal) = nullptr;
  Result (*uuid)(CudaUuid*, int device) = nullptr;
  Result (*name)(char*, int length, int device) = nullptr;
  Result (*total_memory)(std::size_t*, int device) = nullptr;
  Result (*attribute)(int*, int attribute, int device) = nullptr;

  // "" when every call was found
  std::string load() {
    library.reset(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
    if (!library) return "NVIDIA's driver library libcuda.so.1 is not there";
    const bool found = find("cuInit", init) && find("cuGetErrorString", error_string) &&
                       find("cuDeviceGetCount", count) && find("cuDeviceGet", get) &&
                       find("cuDeviceGetUuid_v2", uuid) && find("cuDeviceGetName", name) &&
                       find("cuDeviceTotalMem_v2", total_memory) && find("cuDeviceGetAttribute", attribute);
    return found ? "" : "NVIDIA's driver is too old: libcuda.so.1 lacks calls of CUDA 11.4";
  }

  std::string text(Result result) const {
    const char* text = nullptr;
    return error_string(result, &text) == 0 && text != nullptr ? text : "error " + std::to_string(result);
  }

 private:
  template <typename Function>
  bool find(const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library.get(), symbol));
    return function != nullptr;
  }
};

std::string describe(const Driver& driver, int ordinal, Gpu& gpu) {
  int device = 0;
  CudaUuid uuid{};
  char name[256] = {};
  std::size_t bytes = 0;
  Result result = driver.get(&device, ordinal);
  if (result == 0) result = driver.uuid(&uuid, device);
  if (result == 0) result = driver.name(name, sizeof name, device);
  if (result == 0) result = driver.total_memory(&bytes, device);
  if (result == 0) result = driver.attribute(&gpu.major, kMajor, device);
  if (result == 0) result = driver.attribute(&gpu.minor, kMinor, device);
  if (result != 0) return "GPU " + std::to_string(ordinal) + " cannot be asked: " + driver.text(result);
  gpu.ordinal = ordinal;
  gpu.uuid = format_uuid(uuid.bytes);
  gpu.name = name;
  gpu.memory_bytes = bytes;
  return "";
}

std::string none_visible() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "NVIDIA's driver finds no GPU"
                            : "NVIDIA's driver finds no GPU with CUDA_VISIBLE_DEVICES=\"" + std::string(visible) + "\"";
}

}  // namespace

std::string format_uuid(const unsigned char (&bytes)[16]) {
  std::string text = hex_of(bytes, sizeof bytes);
  for (const std::size_t place : {8, 13, 18, 23}) text.insert(place, "-");
  return text;
}

Inventory find_gpus() {
  Inventory inventory;
  Driver driver;
  inventory.reason = driver.load();
  if (!inventory.reason.empty()) return inventory;
  Result result = driver.init(0);
  driver.library.release();  // its threads live on after cuInit: its code must stay where it is
  if (result == kNoDevice) {
    inventory.reason = none_visible();
    return inventory;
  }
  int count = 0;
  if (result == 0) result = driver.count(&count);
  if (result != 0) {
    inventory.reason = "NVIDIA's driver cannot start: " + driver.text(result);
    return inventory;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Gpu gpu;
    const std::string problem = describe(driver, ordinal, gpu);
    if (!problem.empty()) return {{}, problem};
    inventory.gpus.push_back(std::move(gpu));
  }
  if (inventory.gpus.empty()) inventory.reason = none_visible();
  return inventory;
}

}  // namespace vime::devices
