#include "sweep/run_folder.hpp"

#include <string>
#include <system_error>

#include "base/error.hpp"
#include "base/log.hpp"

namespace vime::sweep {
namespace {

constexpr const char* kCure = "choose a --run-dir that can be written";
// Of names that are taken; and of times that somebody else may remove the parent before the folder is made.
constexpr int kMostTries = 1000;

}  // namespace

RunFolder::RunFolder(const fs::path& wanted, bool numbered) {
  const fs::path folder = fs::absolute(wanted).lexically_normal();
  numbered ? make_numbered(folder) : take(folder);
}

void RunFolder::make_numbered(const fs::path& wanted) {
  std::error_code error;
  fs::path path = wanted;
  int number = 1;
  for (int tries = 0; tries < kMostTries; ++tries) {
    made_parent_ = fs::create_directory(wanted.parent_path(), error) || made_parent_;
    if (error) break;
    if (fs::create_directory(path, error)) {  // succeeds for one of those who want it
      path_ = path;
      return;
    }
    if (error == std::errc::no_such_file_or_directory) continue;  // another sweep has removed the parent that it made
    if (error && error != std::errc::file_exists && error != std::errc::not_a_directory) break;
    path = wanted.string() + "-" + std::to_string(++number);
  }
  throw Error(ErrorKind::refused,
              "run directory: create folder " + path.string() + ": " + (error ? error.message() : "it exists"), kCure);
}

void RunFolder::take(const fs::path& wanted) {
  std::error_code error;
  if (fs::exists(wanted, error) && !(fs::is_directory(wanted, error) && fs::is_empty(wanted, error))) {
    throw Error(ErrorKind::refused, "run directory " + wanted.string() + " is not an empty folder",
                "choose another --run-dir, or remove it");
  }
  try {
    make_directories(wanted);
  } catch (const Error& failure) {
    throw Error(ErrorKind::refused, "run directory: " + failure.message(), kCure);
  }
  path_ = wanted;
}

void RunFolder::remove() const {
  std::error_code error;
  fs::remove_all(path_, error);
  if (error) log::warning("sweep", "remove " + path_.string() + ": " + error.message());
  if (made_parent_) fs::remove(path_.parent_path(), error);  // fails, as it should, when it is not empty
}

}  // namespace vime::sweep
