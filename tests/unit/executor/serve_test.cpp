// serve_engine in a process of its own, from its ready message to its end.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "torch_doctest.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/files.hpp"
#include "base/json.hpp"
#include "executor/serve_engine.hpp"
#include "http/client.hpp"
#include "reference.hpp"

using namespace vime;
using namespace vime::executor;

namespace {

struct Served {
  explicit Served(bool load_weights) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    pid = ::fork();
    if (pid == 0) {
      ::setenv("VIME_READY_FD", std::to_string(writing.get()).c_str(), 1);
      EngineOptions options;
      options.workers = options_for("llama", 2);
      options.workers.load_weights = load_weights;
      options.served_model_name = "m";
      int status = 1;
      try {
        status = serve_engine(options);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(status);
    }
    writing.reset();
    std::string line;
    pollfd polled{reading.get(), POLLIN, 0};
    char piece[256];
    while (line.find('\n') == std::string::npos) {
      REQUIRE(::poll(&polled, 1, 60'000) == 1);
      const ssize_t got = ::read(reading.get(), piece, sizeof piece);
      REQUIRE(got > 0);
      line.append(piece, static_cast<std::size_t>(got));
    }
    port = parse_json(line).at("port").get<int>();
    client = std::make_unique<http::Client>();
  }
  ~Served() {
    if (pid > 0) ::kill(pid, SIGKILL);
    if (pid > 0) ::waitpid(pid, nullptr, 0);
  }
  http::Reply request(const std::string& method, const std::string& path, const std::string& body = "") {
    http::Request request;
    request.method = method;
    request.url = "http://127.0.0.1:" + std::to_string(port) + path;
    request.body = body;
    request.what = path;
    const http::Outcome outcome = client->send(std::move(request)).get();
    REQUIRE_MESSAGE(outcome.answered, outcome.error);
    return outcome.reply;
  }
  int end(int signal) {
    ::kill(pid, signal);
    return wait();
  }
  int wait() {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    pid = 0;
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }

  pid_t pid = 0;
  int port = 0;
  std::unique_ptr<http::Client> client;  // has a thread, so it comes after the fork
};

// Processes whose parent is `parent`.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    try {
      const std::string text = read_file(entry.path() / "stat");
      // "pid (comm) state ppid ..."
      if (std::atoi(text.c_str() + text.rfind(')') + 4) == parent) children.push_back(std::atoi(name.c_str()));
    } catch (const Error&) {
      // It has ended meanwhile.
    }
  }
  return children;
}

}  // namespace

TEST_CASE("an engine serves completions and ends cleanly on SIGTERM") {
  Served served(true);
  CHECK(served.request("GET", "/health").status == 200);
  CHECK(parse_json(served.request("GET", "/get_world_size").body)["world_size"] == 2);
  const torch::Tensor prompt = reference_tensor("llama", "prompt")[0].to(torch::kInt64);
  const torch::Tensor greedy = reference_tensor("llama", "greedy")[0].to(torch::kInt64);
  const std::vector<int64_t> ids(prompt.data_ptr<int64_t>(), prompt.data_ptr<int64_t>() + prompt.numel());
  const Json body = {{"model", "m"},  {"prompt", ids},      {"max_tokens", greedy.numel()}, {"temperature", 0},
                     {"logprobs", 0}, {"ignore_eos", true}, {"return_token_ids", true}};
  const http::Reply reply = served.request("POST", "/v1/completions", body.dump());
  REQUIRE_MESSAGE(reply.status == 200, reply.body);
  CHECK(parse_json(reply.body)["choices"][0]["token_ids"].get<std::vector<int64_t>>() ==
        std::vector<int64_t>(greedy.data_ptr<int64_t>(), greedy.data_ptr<int64_t>() + greedy.numel()));
  const auto workers = children_of(served.pid);
  CHECK(workers.size() == 2);
  CHECK(served.end(SIGTERM) == 0);
  for (const pid_t worker : workers) CHECK(::kill(worker, 0) != 0);
}

TEST_CASE("an engine without weights says so, and one whose worker dies ends with status 4") {
  Served served(false);
  CHECK(served.request("POST", "/v1/completions", R"({"prompt":[3]})").status == 409);
  const auto workers = children_of(served.pid);
  REQUIRE(workers.size() == 2);
  ::kill(workers[0], SIGKILL);
  const http::Reply reply = served.request("POST", "/collective_rpc", R"({"method":"reload_weights"})");
  CHECK(reply.status == 500);
  CHECK(reply.body.find("was killed by signal 9") != std::string::npos);
  CHECK(served.wait() == 4);
  for (const pid_t worker : workers) CHECK(::kill(worker, 0) != 0);
}
