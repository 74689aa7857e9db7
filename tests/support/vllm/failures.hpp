// How the stand-in's calls fail. Each is turned into an answer in one place, the front's dispatch.
#pragma once

#include <stdexcept>
#include <string>

namespace vime::stand_in {

// A Python exception in a worker: the call is answered 500 with this text, the server lives on.
class WorkerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A fault that takes the engine process along: everything in flight is answered 500 and /health says 503 from then on.
class EngineDeath : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An answer of the HTTP layer that never reached the engine.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

}  // namespace vime::stand_in
