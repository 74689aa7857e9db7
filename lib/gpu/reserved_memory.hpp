// Memory of the calling thread's GPU whose addresses outlive its contents: the address range is reserved for good, the
// memory behind it comes and goes. What knows the addresses (tensors, captured CUDA graphs) need not be told when it
// is given back and taken again. Other processes cannot open it. Contents are not initialised.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vime::gpu {

class ReservedMemory {
 public:
  explicit ReservedMemory(uint64_t bytes);  // addresses only
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }  // rounded up to what the GPU gives
  bool committed() const { return handle_ != 0; }
  void commit();   // puts memory there; Error{exhausted} with the wanted and the free bytes
  void release();  // gives it back; everything that works on it must be done

 private:
  uint64_t bytes_ = 0;
  int device_ = 0;
  std::byte* data_ = nullptr;
  unsigned long long handle_ = 0;  // CUmemGenericAllocationHandle
};

}  // namespace vime::gpu
