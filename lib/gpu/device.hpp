// The GPU that the calling thread works on. Which GPUs a machine has is asked in lib/devices.
#pragma once

#include <cstdint>
#include <string>

namespace vime::gpu {

bool built();  // whether this binary can drive GPUs at all; every other call of this room then is Error{refused}

// Makes the GPU with this UUID (lower case, no prefix), or the share of one (devices/gpu_share.hpp), the calling
// thread's and returns the GPU's ordinal. Error{refused} naming those that CUDA sees when it is not among them. A
// process whose threads take several shares of one GPU cannot have them exchange anything (communicator.hpp).
int select_device(const std::string& uuid);
int devices_on_gpu();  // that share the GPU which the calling thread has selected; 1 where it has it alone
int device_count();
std::string device_uuid(int ordinal);

// Whether the calling thread's GPU reads the memory of the one with this UUID, itself or another, over NVLink or PCIe.
bool reaches(const std::string& uuid);
// From here on the calling thread's GPU reads what this process has in that one's memory; what other processes have is
// opened by its handle (ipc.hpp). That GPU is reached.
void read_from(const std::string& uuid);

struct MemoryInfo {
  uint64_t free_bytes = 0;  // other processes' memory counts as used
  uint64_t total_bytes = 0;
};
MemoryInfo memory_info();  // of the whole GPU, shared or not

// Blocks until everything given to this thread's GPU has been done; the place where errors of kernels come up.
void synchronize();

}  // namespace vime::gpu
