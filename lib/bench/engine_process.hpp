// serve_weights in a process of its own. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::bench {

class EngineProcess {
 public:
  // Returns when it serves. Error{process_failed} when it does not.
  EngineProcess(std::vector<std::string> command, const Json& options);
  ~EngineProcess();  // ends it
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  uint16_t port() const { return port_; }
  pid_t pid() const { return pid_; }
  void send(const Json& call);
  Json reply();  // Error{process_failed} when it reports one, or has gone
  Json call(const Json& request) {
    send(request);
    return reply();
  }

 private:
  pid_t pid_ = 0;
  UniqueFd stdin_, stdout_;
  std::string read_;  // behind the last line
  uint16_t port_ = 0;
};

}  // namespace vime::bench
