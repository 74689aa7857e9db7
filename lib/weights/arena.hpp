// Memory that holds weights and that another process of the same machine can read: the owner's side and the reader's
// side. In the host's memory it is shared_arena.hpp; on GPUs, lib/channels has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace vime::weights {

// The owner's side. The memory lives while this lives.
class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* data() const = 0;
  virtual uint64_t bytes() const = 0;
  virtual std::string handle() const = 0;  // what a reader opens; of the calling process
};

// The reader's side.
class Mapping {
 public:
  virtual ~Mapping() = default;
  virtual const std::byte* data() const = 0;
  virtual uint64_t bytes() const = 0;
};
// Error{refused} for text that is no handle, Error{process_failed} naming the handle and why it cannot be opened.
using OpenMapping = std::function<std::unique_ptr<Mapping>(const std::string& handle)>;

}  // namespace vime::weights
