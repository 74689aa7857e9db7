#include "loop/weight_folders.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"

namespace vime::loop {
namespace {

constexpr const char* kPrefix = "version_";

}  // namespace

WeightFolders::WeightFolders(fs::path root) : root_(std::move(root)) {
  if (root_.empty()) return;
  std::error_code ignored;
  fs::remove_all(root_, ignored);  // of an attempt that was killed
  try {
    make_directories(root_);
  } catch (const Error& error) {
    throw Error(ErrorKind::refused, "weight_sync.disk_dir: " + error.message(), "give a folder that can be written");
  }
}

WeightFolders::~WeightFolders() {
  if (root_.empty()) return;
  std::error_code failure;
  fs::remove_all(root_, failure);
  if (failure) log::warning("loop", "remove " + root_.string() + ": " + failure.message());
}

fs::path WeightFolders::folder(int64_t version) const {
  char name[40];
  std::snprintf(name, sizeof name, "%s%06lld", kPrefix, static_cast<long long>(version));
  return root_ / name;
}

fs::path WeightFolders::begin(int64_t version, uint64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(root_, error);
  if (!error && space.available < bytes) {  // a disk that does not say shows its limit when it is written to
    throw Error(ErrorKind::exhausted,
                "weights of version " + std::to_string(version) + " need " + format_bytes(bytes) + " in " +
                    root_.string() + ", where " + format_bytes(space.available) + " are free",
                "make room, or give another folder as weight_sync.disk_dir");
  }
  fs::path aside = folder(version);
  aside += ".partial";
  fs::remove_all(aside, error);
  make_directories(aside);
  return aside;
}

fs::path WeightFolders::publish(int64_t version) const {
  fs::path aside = folder(version);
  aside += ".partial";
  std::error_code error;
  fs::remove_all(folder(version), error);  // the same number again: the same bytes
  fs::rename(aside, folder(version), error);
  if (error) throw Error(ErrorKind::exhausted, "rename " + aside.string() + ": " + error.message());
  sync_directory(root_);
  remove_all_but(version - 1);
  return folder(version);
}

// Those from `oldest` on stay.
void WeightFolders::remove_all_but(int64_t oldest) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    if (entry.path().extension() != ".partial" && entry.path() >= folder(oldest)) continue;
    std::error_code failure;
    fs::remove_all(entry.path(), failure);
    if (failure) log::warning("loop", "remove " + entry.path().string() + ": " + failure.message());
  }
}

}  // namespace vime::loop
