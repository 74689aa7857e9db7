// All trainer ranks, driven in lock step: one command goes to every rank, and the driver waits for all answers. One
// thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "fleet/supervisor.hpp"
#include "http/client.hpp"

namespace vime::loop {

class TrainerGroup {
 public:
  // urls: by rank.
  TrainerGroup(http::Client& client, fleet::Supervisor& supervisor, std::vector<std::string> urls, std::string token,
               std::chrono::milliseconds timeout);

  int size() const { return static_cast<int>(urls_.size()); }
  // The same command to every rank; answers by rank. Error{process_failed} names the ranks that failed or did not
  // answer in time. The user's Ctrl-C is heeded only afterwards: a command that some ranks have begun must be finished
  // by all.
  std::vector<Json> call_all(const std::string& path, const Json& body);
  Json call(int rank, const std::string& path, const Json& body);

 private:
  std::vector<Json> call_ranks(const std::vector<int>& ranks, const std::string& path, const Json& body);

  http::Client& client_;
  fleet::Supervisor& supervisor_;
  std::vector<std::string> urls_;
  std::string token_;
  std::chrono::milliseconds timeout_;
};

}  // namespace vime::loop
