#include "gpu/reserved_memory.hpp"

#include <cuda.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "gpu/check.hpp"
#include "gpu/device.hpp"

namespace vime::gpu {
namespace {

// The driver's functions come through the runtime, so that no binary needs libcuda to start.
template <typename Function>
Function* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
  if (found != cudaDriverEntryPointSuccess) {
    throw Error(ErrorKind::refused, std::string("the NVIDIA driver is too old: it has no ") + name);
  }
  return reinterpret_cast<Function*>(function);
}

struct Driver {
  decltype(cuMemGetAllocationGranularity)* granularity =
      driver_function<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(cuMemAddressReserve)* reserve = driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(cuMemAddressFree)* unreserve = driver_function<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(cuMemCreate)* create = driver_function<decltype(cuMemCreate)>("cuMemCreate");
  decltype(cuMemRelease)* release = driver_function<decltype(cuMemRelease)>("cuMemRelease");
  decltype(cuMemMap)* map = driver_function<decltype(cuMemMap)>("cuMemMap");
  decltype(cuMemUnmap)* unmap = driver_function<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(cuMemSetAccess)* set_access = driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

std::string sentence(CUresult result, const char* call, int device) {
  return std::string(call) + " on GPU " + std::to_string(device) + ": CUDA driver error " + std::to_string(result);
}

void check_driver(CUresult result, const char* call, int device) {
  if (result != CUDA_SUCCESS) throw Error(ErrorKind::process_failed, sentence(result, call, device));
}

void warn_driver(CUresult result, const char* call, int device) noexcept {
  // At the end of a process the driver may have gone before what it would free.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED) return;
  log::warning("gpu", sentence(result, call, device));
}

}  // namespace

ReservedMemory::ReservedMemory(uint64_t bytes) {
  VIME_CUDA(cudaGetDevice(&device_));
  VIME_CUDA(cudaFree(nullptr));  // the driver's functions need the runtime's context
  const CUmemAllocationProp properties = properties_on(device_);
  size_t unit = 0;
  check_driver(driver().granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "cuMemGetAllocationGranularity", device_);
  bytes_ = (std::max<uint64_t>(bytes, 1) + unit - 1) / unit * unit;
  CUdeviceptr address = 0;
  check_driver(driver().reserve(&address, bytes_, 0, 0, 0), "cuMemAddressReserve", device_);
  data_ = reinterpret_cast<std::byte*>(address);
}

ReservedMemory::~ReservedMemory() {
  const auto address = reinterpret_cast<CUdeviceptr>(data_);
  if (committed()) {
    warn_driver(driver().unmap(address, bytes_), "cuMemUnmap", device_);
    warn_driver(driver().release(handle_), "cuMemRelease", device_);
  }
  warn_driver(driver().unreserve(address, bytes_), "cuMemAddressFree", device_);
}

void ReservedMemory::commit() {
  if (committed()) return;
  const CUmemAllocationProp properties = properties_on(device_);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = driver().create(&handle, bytes_, &properties, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    const MemoryInfo info = memory_info();
    throw Error(ErrorKind::exhausted, "GPU " + std::to_string(device_) + ": " + format_bytes(bytes_) + " wanted, " +
                                          format_bytes(info.free_bytes) + " of " + format_bytes(info.total_bytes) +
                                          " are free");
  }
  check_driver(result, "cuMemCreate", device_);
  const auto address = reinterpret_cast<CUdeviceptr>(data_);
  if (const CUresult mapped = driver().map(address, bytes_, 0, handle, 0); mapped != CUDA_SUCCESS) {
    warn_driver(driver().release(handle), "cuMemRelease", device_);
    check_driver(mapped, "cuMemMap", device_);
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (const CUresult given = driver().set_access(address, bytes_, &access, 1); given != CUDA_SUCCESS) {
    warn_driver(driver().unmap(address, bytes_), "cuMemUnmap", device_);
    warn_driver(driver().release(handle), "cuMemRelease", device_);
    check_driver(given, "cuMemSetAccess", device_);
  }
  handle_ = handle;
}

void ReservedMemory::release() {
  if (!committed()) return;
  const CUmemGenericAllocationHandle handle = handle_;
  handle_ = 0;
  check_driver(driver().unmap(reinterpret_cast<CUdeviceptr>(data_), bytes_), "cuMemUnmap", device_);
  check_driver(driver().release(handle), "cuMemRelease", device_);
}

}  // namespace vime::gpu
