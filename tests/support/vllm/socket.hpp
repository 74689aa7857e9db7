// A blocking TCP connection with a limit on every read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/files.hpp"

namespace vime::stand_in {

class Socket {
 public:
  // Tries again until somebody listens. WorkerError with torch's text once the time is over.
  static Socket connect(const std::string& host, uint16_t port, std::chrono::milliseconds timeout);

  void send(const std::string& bytes) const;
  // WorkerError when the other side closes before.
  void receive(void* into, std::size_t count) const;
  std::string receive(std::size_t count) const;

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace vime::stand_in
