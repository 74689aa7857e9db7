// serve_weights in a process of its own. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "proc/owned_child.hpp"

namespace vime::bench {

class EngineProcess {
 public:
  // Returns when it serves. timeout: of the start, and of each call and reply. Error{process_failed} when it does not
  // serve by then; no process is left in that case either.
  EngineProcess(std::vector<std::string> command, const Json& options, milliseconds timeout = milliseconds(120'000));
  ~EngineProcess();  // ends it
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  uint16_t port() const { return port_; }
  pid_t pid() const { return child_.pid(); }
  // Error{process_failed} when it does not take the call.
  void send(const Json& call);
  Json reply();  // Error{process_failed} when it reports one, has gone, or says nothing within the timeout
  Json call(const Json& request) {
    send(request);
    return reply();
  }

 private:
  [[noreturn]] void gone();
  void wait_for(int fd, short events, const Deadline& deadline) const;

  milliseconds timeout_;
  std::string program_;
  UniqueFd stdin_, stdout_;
  UniqueFd exec_pipe_;
  proc::OwnedChild child_;
  std::string read_;  // behind the last line
  uint16_t port_ = 0;
};

}  // namespace vime::bench
