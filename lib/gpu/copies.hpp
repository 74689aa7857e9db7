// Many two-dimensional copies within a GPU's reach in one kernel launch (one for each kind of element that is cast or
// summed), at the speed of its memory whether they are one of 16 GB or twenty thousand of 3 MB. On the way elements may
// change their type, and their content checksum (weights/checksum.hpp) may be taken. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/stream.hpp"

namespace vime::gpu {

// To the nearest, ties to even, as LibTorch does it.
enum class Cast { none, f32_to_bf16, bf16_to_f32 };

struct Copy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;  // null: nothing is written, only summed
  uint64_t row_bytes = 0;   // of `from`
  uint64_t rows = 1;
  uint64_t from_pitch = 0;  // bytes from one row to the next; of no meaning where there is one row
  uint64_t to_pitch = 0;
  Cast cast = Cast::none;
  // Of the checksum; element_bytes of `from`, 1, 2, 4 or 8. With a cast or a sum every address is a multiple of it.
  int element_bytes = 0;
  uint64_t first_index = 0;  // the first element's place in the full tensor, in elements
  uint64_t index_pitch = 0;  // places from one row to the next
};

class Copies {
 public:
  // The table goes to the GPU here, once. No `to` overlaps another copy's memory. sums: take every copy's checksum, of
  // the elements as they are written.
  explicit Copies(const std::vector<Copy>& copies, bool sums = false);
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Gives the copies to the stream and returns. May come again; each time takes new sums.
  void run(Stream stream);
  // Blocks until the stream is done; the last run's sums, one per copy, in their order.
  std::vector<uint64_t> sums(Stream stream) const;

  uint64_t bytes() const { return bytes_; }              // read in one run
  uint64_t table_bytes() const { return table_bytes_; }  // that the GPU keeps for this

 private:
  // Copies that one kernel does.
  struct Group;

  std::size_t count_;
  std::vector<Group> groups_;
  uint64_t bytes_ = 0;
  uint64_t table_bytes_ = 0;
  std::unique_ptr<DeviceMemory> table_;
  std::unique_ptr<DeviceMemory> sums_;
};

}  // namespace vime::gpu
