// Which handler answers which request, and what is answered when there is none or when it throws.
// Filled before the server starts, read by the server's thread afterwards.
#pragma once

#include <map>
#include <string>

#include "http/server.hpp"

namespace vime::http {

class Router {
 public:
  void add(const std::string& method, const std::string& path, Handler handler);

  // Runs the handler on the calling thread; every failure becomes an error response.
  void dispatch(const ServerRequest& request, const Responder& responder) const;

  // "GET, POST" for a known path, "" for another. HTTP demands this list in every 405 answer.
  std::string allowed_methods(const std::string& path) const;

 private:
  std::map<std::string, std::map<std::string, Handler>> handlers_;  // path -> method -> handler
};

}  // namespace vime::http
