// Zero-filled private memory straight from the kernel: pages cost nothing before they are touched and can be given back
// while the addresses stay valid.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vime::executor {

class Pages {
 public:
  explicit Pages(uint64_t bytes);  // Error{exhausted} when there is no address space
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Gives the memory back to the system; the contents read as zeros afterwards.
  void drop();

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace vime::executor
