#include "loop/run_directory.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "base/error.hpp"

namespace vime::loop {
namespace {

std::string numbered(const char* prefix, int64_t number) {
  char text[64];
  std::snprintf(text, sizeof text, "%s%06lld", prefix, static_cast<long long>(number));
  return text;
}

}  // namespace

RunDirectory::RunDirectory(fs::path root) : root_(fs::absolute(std::move(root)).lexically_normal()) {
  std::error_code ignored;
  if (fs::exists(spec(), ignored)) {
    throw Error(ErrorKind::refused, "run directory " + root_.string() + " already holds a run",
                "choose another --run-dir, or remove it");
  }
  if (fs::exists(root_, ignored) && !fs::is_directory(root_, ignored)) {
    throw Error(ErrorKind::refused, "run directory " + root_.string() + " is not a folder");
  }
  try {
    logs_ = root_ / "logs" / "attempt_1";
    for (const fs::path& folder : {logs_, root_ / "rollouts", root_ / "checkpoints", model()}) make_directories(folder);
    replace_symlink("attempt_1", root_ / "logs" / "latest");
  } catch (const Error& error) {
    throw Error(ErrorKind::refused, "run directory: " + error.message(), "choose a --run-dir that can be written");
  }
}

fs::path RunDirectory::rollout(int64_t rollout_id) const {
  return root_ / "rollouts" / numbered("rollout_", rollout_id);
}

fs::path RunDirectory::checkpoint(int64_t step) const {
  return root_ / "checkpoints" / numbered("step_", step);
}

fs::path RunDirectory::checkpoint_aside(int64_t step) const {
  return root_ / "checkpoints" / (numbered(".step_", step) + ".partial");
}

void RunDirectory::prune_rollouts(int64_t newest, int64_t keep) const {
  const fs::path old = rollout(newest - keep);
  std::error_code ignored;  // files that are not there need no removal
  for (const char* extension : {".safetensors", ".jsonl"}) fs::remove(old.string() + extension, ignored);
}

void RunDirectory::publish_checkpoint(int64_t step, int64_t keep) const {
  const fs::path target = checkpoint(step);
  std::error_code error;
  fs::rename(checkpoint_aside(step), target, error);
  if (error) throw Error(ErrorKind::exhausted, "rename checkpoint to " + target.string() + ": " + error.message());
  sync_directory(target.parent_path());
  replace_symlink(target.filename(), root_ / "checkpoints" / "latest");
  std::vector<fs::path> finished;
  for (const auto& entry : fs::directory_iterator(target.parent_path())) {
    if (entry.is_directory() && !entry.is_symlink() && entry.path().filename().string().rfind("step_", 0) == 0) {
      finished.push_back(entry.path());
    }
  }
  std::sort(finished.begin(), finished.end());
  for (size_t i = 0; static_cast<int64_t>(finished.size() - i) > keep; ++i) fs::remove_all(finished[i], error);
}

fs::path default_run_dir(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  return fs::path("runs") / (name + "-" + stamp);
}

}  // namespace vime::loop
