#include "loop/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"

namespace vime::loop {
namespace {

std::string numbered(const char* prefix, int64_t number) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%06lld", prefix, static_cast<long long>(number));
  return text;
}

// The number behind the prefix, or nothing: "step_000010" is 10.
std::optional<int64_t> number_of(const std::string& name, const std::string& prefix) {
  if (name.rfind(prefix, 0) != 0) return std::nullopt;
  const std::string digits = name.substr(prefix.size());
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(digits);
}

std::vector<fs::path> folders_in(const fs::path& parent) {
  std::vector<fs::path> folders;
  std::error_code error;  // a folder that is not there has none
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (entry.is_directory() && !entry.is_symlink()) folders.push_back(entry.path());
  }
  return folders;
}

}  // namespace

RunDirectory::RunDirectory(fs::path root, Existing existing) : root_(fs::absolute(std::move(root)).lexically_normal()) {
  std::error_code ignored;
  if (existing == Existing::refuse && fs::exists(spec(), ignored)) {
    throw Error(ErrorKind::refused, "run directory " + root_.string() + " already holds a run",
                "go on with it by --resume, choose another --run-dir, or remove it");
  }
  if (fs::exists(root_, ignored) && !fs::is_directory(root_, ignored)) {
    throw Error(ErrorKind::refused, "run directory " + root_.string() + " is not a folder");
  }
  try {
    make_directories(root_);
    lock();
    make_folders();
  } catch (const Error& error) {
    throw Error(ErrorKind::refused, "run directory: " + error.message(),
                error.hint().empty() ? "choose a --run-dir that can be written" : error.hint());
  }
}

void RunDirectory::lock() {
  lock_ = UniqueFd(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_) throw_errno(ErrorKind::refused, "open " + root_.string());
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) {
    log::warning("loop", root_.string() + " cannot be locked (" + errno_text(errno) +
                             "): take care that no other vime works in it");
    return;
  }
  throw Error(ErrorKind::refused, "another vime is working in " + root_.string(),
              "wait for its end, or choose another --run-dir");
}

void RunDirectory::make_folders() {
  for (const fs::path& folder : folders_in(root_ / "logs")) {
    const std::optional<int64_t> number = number_of(folder.filename().string(), "attempt_");
    if (number) attempt_ = std::max(attempt_, static_cast<int>(*number) + 1);
  }
  const std::string name = "attempt_" + std::to_string(attempt_);
  logs_ = root_ / "logs" / name;
  for (const fs::path& folder : {logs_, root_ / "rollouts", checkpoints(), model()}) make_directories(folder);
  replace_symlink(name, root_ / "logs" / "latest");
}

fs::path RunDirectory::rollout(int64_t rollout_id) const {
  return root_ / "rollouts" / numbered("rollout_", rollout_id);
}

fs::path RunDirectory::checkpoint(int64_t step) const {
  return checkpoints() / numbered("step_", step);
}

fs::path RunDirectory::checkpoint_aside(int64_t step) const {
  return checkpoints() / (numbered(".step_", step) + ".partial");
}

void RunDirectory::prune_rollouts(int64_t newest, int64_t keep) const {
  const fs::path old = rollout(newest - keep);
  std::error_code ignored;  // files that are not there need no removal
  for (const char* extension : {".safetensors", ".jsonl"}) fs::remove(old.string() + extension, ignored);
}

void RunDirectory::publish_checkpoint(int64_t step, int64_t keep, std::optional<int64_t> keep_every) const {
  const fs::path target = checkpoint(step);
  std::error_code error;
  fs::remove_all(target, error);  // of an attempt that got further than the one that is gone on with
  fs::rename(checkpoint_aside(step), target, error);
  if (error) throw Error(ErrorKind::exhausted, "rename checkpoint to " + target.string() + ": " + error.message());
  sync_directory(target.parent_path());
  replace_symlink(target.filename(), checkpoints() / "latest");
  const std::vector<fs::path> finished = finished_checkpoints(root_);
  for (size_t i = static_cast<size_t>(keep); i < finished.size(); ++i) {
    const int64_t of = *number_of(finished[i].filename().string(), "step_");
    if (keep_every && of % *keep_every == 0) continue;
    fs::remove_all(finished[i], error);
    if (error) log::warning("loop", "remove " + finished[i].string() + ": " + error.message());
  }
}

void RunDirectory::remove_partial_checkpoints() const {
  std::error_code error;
  for (const fs::path& folder : folders_in(checkpoints())) {
    const std::string name = folder.filename().string();
    if (name.rfind(".step_", 0) == 0 && name.ends_with(".partial")) fs::remove_all(folder, error);
  }
}

void RunDirectory::remove_checkpoints_after(int64_t step) const {
  remove_partial_checkpoints();
  std::error_code error;
  for (const fs::path& folder : finished_checkpoints(root_)) {
    if (*number_of(folder.filename().string(), "step_") <= step) continue;
    log::info("loop", "removing " + folder.string() + ", which is newer than what the run goes on from");
    fs::remove_all(folder, error);
  }
}

std::vector<Json> RunDirectory::rewind_metrics(int64_t step) const {
  std::vector<Json> kept;
  std::error_code ignored;
  if (!fs::exists(metrics(), ignored)) return kept;
  std::string text;
  for (const std::string& line : split(read_file(metrics()), '\n')) {
    const Json object = try_parse_json(line);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    if (object["step"].get<int64_t>() >= step) continue;
    kept.push_back(object);
    text += line + "\n";
  }
  write_file_atomic(metrics(), text);
  return kept;
}

fs::path default_run_dir(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  return fs::path("runs") / (name + "-" + stamp);
}

fs::path newest_run_dir(const std::string& name) {
  std::vector<fs::path> found;
  for (const fs::path& folder : folders_in("runs")) {
    const std::string text = folder.filename().string();
    const std::string stamp = text.rfind(name + "-", 0) == 0 ? text.substr(name.size() + 1) : "";
    if (stamp.size() == 15 && stamp.find_first_not_of("0123456789-") == std::string::npos) found.push_back(folder);
  }
  return found.empty() ? fs::path() : *std::max_element(found.begin(), found.end());
}

std::vector<fs::path> finished_checkpoints(const fs::path& run_dir) {
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const fs::path& folder : folders_in(run_dir / "checkpoints")) {
    if (const auto step = number_of(folder.filename().string(), "step_")) found.emplace_back(*step, folder);
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> folders;
  for (auto& [step, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

}  // namespace vime::loop
