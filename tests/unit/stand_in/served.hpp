// A stand-in under way, and requests to it. Ends with its test.
#pragma once

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"
#include "http/client.hpp"

namespace vime::stand_in {

struct ServeOptions {
  std::string model = VIME_TEST_DATA "/models/qwen3";
  std::string version = "G3";
  std::vector<std::string> arguments = {};  // after those that every test needs
  std::vector<std::string> env = {};        // "NAME=value"
  bool dev_mode = true;
};

// What became of a program that ends by itself.
struct Ended {
  int status = -1;
  std::string err;
};
Ended run_stand_in(const std::vector<std::string>& arguments, const std::vector<std::string>& env);

class Served {
 public:
  explicit Served(const ServeOptions& options = {});
  ~Served();
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  std::future<http::Outcome> send(const std::string& method, const std::string& target, const std::string& body = "",
                                  const http::Headers& headers = {});
  http::Reply get(const std::string& target) { return reply(send("GET", target)); }
  http::Reply post(const std::string& target, const std::string& body = "") {
    return reply(send("POST", target, body));
  }
  // A reply of status 200 as JSON.
  Json post_json(const std::string& target, const Json& body);
  // Log-probs of the prompt's tokens from the second on.
  std::vector<double> prompt_logprobs(const std::vector<int>& prompt);
  std::vector<int> greedy(const std::vector<int>& prompt, int tokens);
  // Waits until so many works are in flight.
  void wait_for_load(int64_t works);

  int signal_and_wait(int signal);
  int wait();  // the exit status, 128 + signal for one that a signal ended
  uint16_t port() const { return port_; }
  int pid() const { return pid_; }

  static http::Reply reply(std::future<http::Outcome> future);

 private:
  http::Client client_;
  UniqueFd err_;
  int pid_ = 0;
  uint16_t port_ = 0;
};

// The status, and the text of {"error": {"message": ..}}.
void check_error(const http::Reply& reply, int status, const std::string& part);

inline const std::vector<int> kPrompt = {5, 9, 13, 2, 77, 31, 8, 40, 41, 42, 43, 44, 3, 1, 19, 100};

}  // namespace vime::stand_in
