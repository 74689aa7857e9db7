// The GPUs of this machine, asked of NVIDIA's driver library without linking it and without making a context on any
// device: for the driver process, which knows no CUDA. The first call takes some 0.1 s where there are GPUs and next to
// nothing where there are none. CUDA_VISIBLE_DEVICES, numbers or UUIDs, is honoured by the library itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime::devices {

struct Gpu {
  int ordinal = 0;   // CUDA's number among those that this process may use
  std::string uuid;  // 8-4-4-4-12, lower case, no prefix; a share's as in gpu_share.hpp
  std::string name;  // "NVIDIA H200"
  uint64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
};

struct Inventory {
  std::vector<Gpu> gpus;
  std::string reason;  // why there are none, a clause: "libcuda.so.1 is not there"
};

// Never throws for what the machine has or lacks.
Inventory find_gpus();

// The 16 bytes of a UUID in the 8-4-4-4-12 form.
std::string format_uuid(const unsigned char (&bytes)[16]);

}  // namespace vime::devices
