// Memory that another process of the same user on the same machine can read: a memfd, so that nothing outlives its
// processes. A handle names the owner's descriptor and carries a nonce, so that a recycled process id can never be
// mistaken for the owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/files.hpp"
#include "weights/arena.hpp"

namespace vime::weights {

// The owner's side. The memory lives while this lives, or while somebody has it mapped.
class SharedArena final : public Arena {
 public:
  explicit SharedArena(uint64_t bytes);  // zero-filled; Error{exhausted} when there is no memory
  ~SharedArena() override;
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }
  std::string handle()
      const override;  // "memfd:<pid>:<fd>:<nonce>"; of the calling process, so a forked child makes its own

 private:
  UniqueFd fd_;
  uint64_t bytes_;
  std::string nonce_;
  std::byte* map_ = nullptr;
  std::byte* data_ = nullptr;
};

// The reader's side: maps the owner's memory read-only.
class SharedMapping final : public Mapping {
 public:
  explicit SharedMapping(
      const std::string& handle);  // Error{process_failed} naming the handle and why it cannot be opened
  ~SharedMapping() override;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  const std::byte* data() const override { return data_; }
  uint64_t bytes() const override { return bytes_; }

 private:
  std::byte* map_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace vime::weights
