// The HTTP side: a thread per connection that reads a request, calls the handler and writes its answer. A small server
// of its own, because the faults that it has to show (half a body, a reset connection) are those that a good one does
// not know. HTTP/1.1 with keep-alive and Content-Length bodies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/files.hpp"
#include "http/server.hpp"

namespace vime::stand_in {

// How an answer leaves.
enum class Ending { whole, half, reset };

struct Answer {
  http::Response response;
  Ending ending = Ending::whole;
};

// Whether the client has closed its connection.
using Gone = std::function<bool()>;
// Called on the connection's thread; may block. Must not throw.
using Handle = std::function<Answer(const http::ServerRequest&, const Gone&)>;

class Front {
 public:
  // Takes the port, which refuses connections until listen(). Error{exhausted} "[Errno 98] error while attempting to
  // bind on address ...".
  Front(const std::string& host, uint16_t port);
  uint16_t port() const { return port_; }
  void listen() const;
  // Accepts for ever, on the calling thread.
  [[noreturn]] void serve(const Handle& handle) const;

 private:
  UniqueFd fd_;
  uint16_t port_ = 0;
};

}  // namespace vime::stand_in
