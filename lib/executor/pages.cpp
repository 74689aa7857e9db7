#include "executor/pages.hpp"

#include <sys/mman.h>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::executor {

Pages::Pages(uint64_t bytes) : bytes_(bytes == 0 ? 1 : bytes) {
  void* const address =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw_errno(ErrorKind::exhausted, "map " + format_bytes(bytes_));
  data_ = static_cast<std::byte*>(address);
}

Pages::~Pages() {
  ::munmap(data_, bytes_);
}

void Pages::drop() {
  if (::madvise(data_, bytes_, MADV_DONTNEED) != 0)
    throw_errno(ErrorKind::internal, "give back " + format_bytes(bytes_));
}

}  // namespace vime::executor
