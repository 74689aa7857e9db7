#include "served.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/deadline.hpp"

extern char** environ;

namespace vime::stand_in {
namespace {

constexpr std::chrono::seconds kPatience{60};

pid_t spawn(std::vector<std::string> argv, std::vector<std::string> env, UniqueFd* err) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  *err = UniqueFd(ends[0]);
  const UniqueFd writing(ends[1]);
  argv.insert(argv.begin(), VIME_BIN_DIR "/stand_in/vllm");
  for (char** variable = environ; *variable != nullptr; ++variable) env.emplace_back(*variable);
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> list;
    for (std::string& text : strings) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  };
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0].c_str(), &actions, nullptr, pointers(argv).data(), pointers(env).data());
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
  return pid;
}

// Reads on until `end` stands in the text or the other side closes.
std::string read_until(int fd, const std::string& end) {
  std::string text;
  const Deadline deadline(kPatience);
  while (text.find(end) == std::string::npos) {
    pollfd polled{fd, POLLIN, 0};
    REQUIRE_MESSAGE(::poll(&polled, 1, static_cast<int>(deadline.remaining().count())) == 1, text);
    char piece[4096];
    const ssize_t got = ::read(fd, piece, sizeof piece);
    if (got <= 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  return text;
}

int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Ended run_stand_in(const std::vector<std::string>& arguments, const std::vector<std::string>& env) {
  UniqueFd err;
  const pid_t pid = spawn(arguments, env, &err);
  Ended ended;
  ended.err = read_until(err.get(), "Uvicorn running");
  if (ended.err.find("Uvicorn running") != std::string::npos) ::kill(pid, SIGKILL);
  ended.status = wait_for(pid);
  return ended;
}

Served::Served(const ServeOptions& options) {
  std::vector<std::string> arguments = {
      "serve",   options.model,         "--host", "127.0.0.1",           "--port", "0", "--dtype",
      "float32", "--served-model-name", "m",      "--generation-config", "vllm"};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> env = options.env;
  env.push_back("VIME_STAND_IN_VERSION=" + options.version);
  if (options.dev_mode) env.push_back("VLLM_SERVER_DEV_MODE=1");
  pid_ = spawn(arguments, env, &err_);
  const std::string opening = "Uvicorn running on http://127.0.0.1:";
  std::string text = read_until(err_.get(), opening);
  REQUIRE_MESSAGE(text.find(opening) != std::string::npos, text);
  if (text.back() != '\n') text += read_until(err_.get(), "\n");
  port_ = static_cast<uint16_t>(std::atoi(text.c_str() + text.find(opening) + opening.size()));
}

Served::~Served() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::future<http::Outcome> Served::send(const std::string& method, const std::string& target, const std::string& body,
                                        const http::Headers& headers) {
  http::Request request;
  request.method = method;
  request.url = "http://127.0.0.1:" + std::to_string(port_) + target;
  request.body = body;
  request.headers = headers;
  request.what = method + " " + target;
  request.timeout = kPatience;
  return client_.send(std::move(request));
}

http::Reply Served::reply(std::future<http::Outcome> future) {
  const http::Outcome outcome = future.get();
  REQUIRE_MESSAGE(outcome.answered, outcome.error);
  return outcome.reply;
}

Json Served::post_json(const std::string& target, const Json& body) {
  const http::Reply answer = post(target, body.dump());
  REQUIRE_MESSAGE(answer.status == 200, answer.body);
  return parse_json(answer.body);
}

std::vector<double> Served::prompt_logprobs(const std::vector<int>& prompt) {
  const Json reply =
      post_json("/v1/completions",
                {{"model", "m"}, {"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}, {"prompt_logprobs", 0}});
  std::vector<double> logprobs;
  const Json list = reply["choices"][0]["prompt_logprobs"];
  REQUIRE(list.size() == prompt.size());
  for (std::size_t i = 1; i < list.size(); ++i)
    logprobs.push_back(list[i][std::to_string(prompt[i])]["logprob"].get<double>());
  return logprobs;
}

std::vector<int> Served::greedy(const std::vector<int>& prompt, int tokens) {
  const Json reply = post_json("/v1/completions", {{"model", "m"},
                                                   {"prompt", prompt},
                                                   {"max_tokens", tokens},
                                                   {"temperature", 0},
                                                   {"ignore_eos", true},
                                                   {"return_token_ids", true}});
  return reply["choices"][0]["token_ids"].get<std::vector<int>>();
}

void Served::wait_for_load(int64_t works) {
  const Deadline deadline(kPatience);
  while (parse_json(get("/load").body)["server_load"] != works) {
    REQUIRE(!deadline.passed());
    std::this_thread::yield();
  }
}

int Served::wait() {
  return wait_for(std::exchange(pid_, 0));
}

int Served::signal_and_wait(int signal) {
  ::kill(pid_, signal);
  return wait();
}

void check_error(const http::Reply& reply, int status, const std::string& part) {
  CHECK_MESSAGE(reply.status == status, reply.body);
  CHECK_MESSAGE(reply.body.find(part) != std::string::npos, reply.body);
}

}  // namespace vime::stand_in
