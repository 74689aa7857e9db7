// Stands in for a user's reward command with every bad habit, and for a driver that can be killed. As a command it does
// what the sample's response says: "give 0.5", "raw NaN", "hang", "die 3", ... Ends by SIGALRM after two minutes, so
// that a failing test leaves nothing behind.
#include <dirent.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "bench.hpp"

using vime::Json;
using namespace vime::reward;

namespace {

void write_line(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

[[noreturn]] void sleep_for_ever() {
  for (;;) ::pause();
}

pid_t fork_daemon() {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(120);
    ::setsid();
    sleep_for_ever();
  }
  return pid;
}

size_t open_descriptors() {
  size_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* item = ::readdir(folder)) count += item->d_name[0] != '.';
  ::closedir(folder);
  return count - 1;  // without the folder's own
}

// True on the first call with this path, over all processes.
bool first_time(const std::string& path) {
  if (std::ifstream(path)) return false;
  std::ofstream(path) << "x";
  return true;
}

void obey(const std::string& id, const std::string& order) {
  const std::string verb = order.substr(0, order.find(' '));
  const std::string rest = order.size() > verb.size() ? order.substr(verb.size() + 1) : "";
  const auto answer = [&](const std::string& value) { write_line("{\"id\":" + id + ",\"reward\":" + value + "}"); };
  if (verb == "give") answer(rest);
  if (verb == "line") write_line(rest);
  if (verb == "hang") sleep_for_ever();
  if (verb == "die") std::exit(std::stoi(rest));
  if (verb == "die-once" && first_time(rest)) std::raise(SIGKILL);
  if (verb == "die-once") answer("1");
  if (verb == "answer-and-die") {
    answer(rest);
    std::exit(0);
  }
  if (verb == "close") {
    ::close(1);
    sleep_for_ever();
  }
  if (verb == "flood") {
    for (;;) std::fputs(std::string(65536, 'x').c_str(), stdout);
  }
  if (verb == "long-text") write_line("{\"id\":" + id + ",\"text\":\"" + std::string(900000, 'x') + "\",\"reward\":1}");
  if (verb == "pid") answer(std::to_string(::getpid()));
  if (verb == "daemon") answer(std::to_string(fork_daemon()));
  if (verb == "descriptors") answer(std::to_string(open_descriptors()));
  if (verb == "length") answer(std::to_string(rest.size()));
}

int run_command(bool holds_back) {
  std::vector<std::pair<std::string, std::string>> held;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = vime::parse_json(line);
    const std::string id = std::to_string(request["id"].get<uint64_t>());
    if (request.contains("group")) {
      std::string rewards;
      for (const Json& item : request["group"]) {
        rewards += (rewards.empty() ? "" : ",") + std::to_string(item["response"].get<std::string>().size());
      }
      write_line("{\"id\":" + id + ",\"rewards\":[" + rewards + "]}");
      continue;
    }
    held.emplace_back(id, request["response"].get<std::string>());
    if (holds_back && held.size() < 3) continue;  // answers three at a time, the last first
    for (; !held.empty(); held.pop_back()) obey(held.back().first, held.back().second);
  }
  return 0;
}

// BIN_DIR RUN_ID: has its workers fork daemons, says their pids, and waits to be killed.
int run_driver(const std::string& bin_dir, const std::string& run_id) {
  test::Bench bench(bin_dir, run_id);
  Rewards rewards(bench.options({bin_dir + "/reward_test_child", "command"}), bench.launcher());
  rewards.submit({{"", "daemon", ""}, {"", "pid", ""}}, [](const std::vector<Score>& scores) {
    std::string line = "up";
    for (const Score& score : scores) line += " " + std::to_string(static_cast<int>(score.value.value_or(-1)));
    write_line(line);
  });
  rewards.finish(vime::Deadline(std::chrono::seconds(30)), [&] { bench.check(); });
  sleep_for_ever();
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(120);
  const std::vector<std::string> words(argv, argv + argc);
  const std::string mode = words.at(1);
  if (mode == "command") return run_command(false);
  if (mode == "reversed") return run_command(true);
  if (mode == "driver") return run_driver(words.at(2), words.at(3));
  if (mode == "banner") {
    write_line("loading the model");
    return run_command(false);
  }
  if (mode == "fail") {
    std::fprintf(stderr, "no module named x\n");
    return std::stoi(words.at(2));
  }
  return 99;
}
