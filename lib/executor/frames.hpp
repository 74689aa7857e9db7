// Messages between the engine's process and its workers, over a stream socket: a header and a payload. Steps travel as
// plain arrays, everything else as JSON. Both ends are the same binary on the same machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "engine/executor.hpp"

namespace vime::executor {

enum class FrameKind : uint32_t {
  control = 1,  // JSON: {"call": name, ...}
  step = 2,     // a Batch
  done = 3,     // JSON: the result of a control call
  drawn = 4,    // Sampled[]
  failed = 5,   // JSON: {"kind", "message"}
};

struct Frame {
  FrameKind kind = FrameKind::control;
  std::string payload;
};

enum class ReadStatus { whole, closed };

// Blocking, for the worker. closed: the other end went away between two messages or within one.
ReadStatus read_frame(int fd, Frame& frame);
// Returns false when the other end has gone.
bool write_frame(int fd, const Frame& frame);

std::string pack_batch(const engine::Batch& batch);
engine::Batch unpack_batch(const std::string& payload);
std::string pack_sampled(const std::vector<engine::Sampled>& sampled);
std::vector<engine::Sampled> unpack_sampled(const std::string& payload);

// A message that arrives in pieces, for the reader that waits for several sockets at once.
class FrameReader {
 public:
  enum class Status { partial, whole, closed };
  // Takes what the non-blocking socket has. After `whole`, frame() holds the message.
  Status read_some(int fd);
  Frame& frame() { return frame_; }

 private:
  std::string bytes_;
  Frame frame_;
};

}  // namespace vime::executor
