// Files and descriptors. Everything here blocks on the disk; errors are Error{refused} for what is missing and
// Error{exhausted} for what could not be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace vime {

namespace fs = std::filesystem;

// Owns one file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

std::string read_file(const fs::path& path);

// Writes <path>.tmp-<pid>, fsyncs it, renames it to path and fsyncs the folder: readers see the old or the new whole
// file.
void write_file_atomic(const fs::path& path, std::string_view content);

// Appends one line in a single write.
void append_line(const fs::path& path, std::string_view line);

void make_directories(const fs::path& path);
// Makes `link` point to `target` in one step, replacing what it pointed to.
void replace_symlink(const fs::path& target, const fs::path& link);
void sync_directory(const fs::path& path);

// A folder of its own under the system's temporary folder, removed with all it holds.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }  // it stays when this goes

 private:
  fs::path path_;
  bool kept_ = false;
};

}  // namespace vime
