#include "fixture.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/deadline.hpp"
#include "base/random.hpp"

namespace vime::proc::test {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // a process that goes meanwhile sets a bit; iterators would throw
  return text.str();
}

std::vector<std::string> numbers_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* open = ::opendir(folder.c_str());
  if (open == nullptr) return names;
  while (const dirent* item = ::readdir(open)) {
    const std::string name = item->d_name;
    if (name.find_first_not_of("0123456789") == std::string::npos) names.push_back(name);
  }
  ::closedir(open);
  return names;
}

// The words of /proc/PID/stat after the name: state, parent, ...
std::vector<std::string> stat_words(const std::string& pid) {
  const std::string text = slurp("/proc/" + pid + "/stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {"X", "0"};
  std::istringstream words(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
}

}  // namespace

bool eventually(const std::function<bool()>& holds, milliseconds limit) {
  const Deadline deadline(limit);
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const std::string& pid : numbers_in("/proc")) {
    const std::string all = slurp("/proc/" + pid + "/cmdline") + slurp("/proc/" + pid + "/environ");
    if (all.find(text) != std::string::npos) found.push_back(std::stoi(pid));
  }
  return found;
}

bool is_alive(pid_t pid) {
  const std::string state = stat_words(std::to_string(pid))[0];
  return state != "Z" && state != "X";
}

std::vector<pid_t> zombies_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const std::string& pid : numbers_in("/proc")) {
    const auto words = stat_words(pid);
    if (words[0] == "Z" && words[1] == std::to_string(parent)) found.push_back(std::stoi(pid));
  }
  return found;
}

std::string command_line(pid_t pid) {
  std::string text = slurp("/proc/" + std::to_string(pid) + "/cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

size_t open_descriptors(pid_t pid) {
  return numbers_in("/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid)) + "/fd").size();
}

Outsider::Outsider(const std::vector<std::string>& argv) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  output_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  char path[] = "PATH=/usr/bin:/bin";
  char* environment[] = {path, nullptr};
  const int error = ::posix_spawn(&pid_, kStandIn.c_str(), &actions, nullptr, words.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
}

Outsider::~Outsider() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Outsider::signal(int number) const {
  REQUIRE(pid_ > 0);
  REQUIRE(::kill(pid_, number) == 0);
}

std::string Outsider::read_line() {
  const Deadline deadline(milliseconds(20000));
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      const std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd polled{output_.get(), POLLIN, 0};
    REQUIRE(::poll(&polled, 1, static_cast<int>(deadline.remaining().count())) == 1);
    char bytes[4096];
    const ssize_t got = ::read(output_.get(), bytes, sizeof bytes);
    REQUIRE(got > 0);
    buffer_.append(bytes, static_cast<size_t>(got));
  }
}

std::optional<int> Outsider::wait(milliseconds limit) {
  int status = 0;
  if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, limit)) return std::nullopt;
  pid_ = 0;
  return status;
}

AgentOptions default_options() {
  return {std::getenv("VIME_TEST_PRELOAD") != nullptr};
}

Bench::Bench(const AgentOptions& options) : run_id("t" + random_token()), agent(kStandIn, run_id, options) {}

Command Bench::command(const std::string& role, const std::vector<std::string>& mode) const {
  Command command;
  command.role = role;
  command.argv = {kStandIn};
  command.argv.insert(command.argv.end(), mode.begin(), mode.end());
  command.log_path = log(role);
  return command;
}

Event Bench::start(const std::string& role, const std::vector<std::string>& mode) {
  agent.start(command(role, mode));
  return expect(Event::Kind::started, role);
}

Event Bench::start_ready(const std::string& role, const std::vector<std::string>& mode) {
  start(role, mode);
  return expect(Event::Kind::ready, role);
}

Event Bench::expect(Event::Kind kind, const std::string& role) {
  const std::optional<Event> event = agent.next_event(milliseconds(10000));
  REQUIRE(event);
  INFO("role " << event->role << ", error " << event->error << ", " << describe_exit(*event));
  REQUIRE(event->kind == kind);
  REQUIRE(event->role == role);
  return *event;
}

Event Bench::run(const std::string& role, const std::vector<std::string>& mode) {
  start(role, mode);
  return expect(Event::Kind::exited, role);
}

std::vector<pid_t> announced_pids(const Event& ready) {
  std::vector<pid_t> pids;
  for (const Json& pid : ready.info.at("pids")) pids.push_back(pid.get<pid_t>());
  return pids;
}

}  // namespace vime::proc::test
