#include "e2e/run_files.hpp"

#include <algorithm>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::e2e {
namespace {

// The title of a process, "" when it has gone.
std::string title_of(const fs::path& process) {
  try {
    std::string line = read_file(process / "cmdline");
    std::replace(line.begin(), line.end(), '\0', ' ');
    return line;
  } catch (const Error&) {
    return "";
  }
}

template <typename Condition>
void wait_for(const Condition& condition, milliseconds timeout, const std::string& what) {
  const Deadline deadline(timeout);
  while (!condition()) {
    deadline.check(what);
    std::this_thread::sleep_for(milliseconds(10));
  }
}

}  // namespace

std::vector<Json> read_lines(const fs::path& jsonl) {
  std::vector<Json> lines;
  if (!fs::exists(jsonl)) return lines;
  for (const std::string& line : split(read_file(jsonl), '\n')) {
    if (!line.empty()) lines.push_back(parse_json(line, jsonl.string()));
  }
  return lines;
}

Json read_json(const fs::path& path) {
  return parse_json(read_file(path), path.string());
}

std::vector<Json> timeless_metrics(const fs::path& run_dir) {
  std::vector<Json> lines = read_lines(run_dir / "metrics.jsonl");
  for (Json& line : lines) {
    Json kept = Json::object();
    for (const auto& [name, value] : line.items()) {
      if (name.rfind("perf/", 0) != 0) kept[name] = value;
    }
    line = kept;
  }
  return lines;
}

std::string final_weights(const fs::path& run_dir) {
  return read_file(run_dir / "checkpoints" / "latest" / "model" / "model.safetensors");
}

std::string run_id_of(const fs::path& run_dir) {
  wait_for([&] { return !read_lines(run_dir / "events.jsonl").empty(); }, milliseconds(30000), "events.jsonl");
  return read_lines(run_dir / "events.jsonl").front().at("run_id").get<std::string>();
}

void wait_for_steps(const fs::path& run_dir, size_t steps) {
  wait_for([&] { return read_lines(run_dir / "metrics.jsonl").size() > steps; }, milliseconds(120000),
           "steps of the run");
}

std::vector<int> processes_of(const std::string& run_id) {
  std::vector<int> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (title_of(entry.path()).find(run_id) != std::string::npos) pids.push_back(std::stoi(name));
  }
  return pids;
}

int find_process(const std::string& run_id, const std::string& title) {
  for (const int pid : processes_of(run_id)) {
    if (title_of("/proc/" + std::to_string(pid)).rfind(title, 0) == 0) return pid;
  }
  throw Error(ErrorKind::refused, "no process of the run is titled " + title);
}

bool all_gone(const std::string& run_id) {
  const Deadline deadline(milliseconds(5000));
  while (!processes_of(run_id).empty()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

}  // namespace vime::e2e
