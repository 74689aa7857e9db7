#include "base/files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.hpp"

namespace vime {
namespace {

void write_all(int fd, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_errno(ErrorKind::exhausted, "write " + path.string());
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int UniqueFd::release() {
  return std::exchange(fd_, -1);
}

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string read_file(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw_errno(ErrorKind::refused, "read " + path.string());
  std::string content;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_errno(ErrorKind::refused, "read " + path.string());
    }
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
  }
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  const fs::path aside = path.string() + ".tmp-" + std::to_string(::getpid());
  try {
    UniqueFd fd(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) throw_errno(ErrorKind::exhausted, "create " + aside.string());
    write_all(fd.get(), content, aside);
    if (::fsync(fd.get()) != 0) throw_errno(ErrorKind::exhausted, "fsync " + aside.string());
    if (::rename(aside.c_str(), path.c_str()) != 0) throw_errno(ErrorKind::exhausted, "rename to " + path.string());
  } catch (const Error&) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void append_line(const fs::path& path, std::string_view line) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) throw_errno(ErrorKind::exhausted, "append to " + path.string());
  std::string whole(line);
  whole += '\n';
  write_all(fd.get(), whole, path);
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Error(ErrorKind::exhausted, "create folder " + path.string() + ": " + error.message());
}

void replace_symlink(const fs::path& target, const fs::path& link) {
  const fs::path aside = link.string() + ".tmp-" + std::to_string(::getpid());
  ::unlink(aside.c_str());
  if (::symlink(target.c_str(), aside.c_str()) != 0) throw_errno(ErrorKind::exhausted, "symlink " + aside.string());
  if (::rename(aside.c_str(), link.c_str()) != 0) throw_errno(ErrorKind::exhausted, "rename to " + link.string());
  sync_directory(link.has_parent_path() ? link.parent_path() : fs::path("."));
}

void sync_directory(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_errno(ErrorKind::exhausted, "open folder " + path.string());
  // Some file systems cannot fsync a folder and say EINVAL; the rename is then as durable as they make it.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw_errno(ErrorKind::exhausted, "fsync " + path.string());
}

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "vime-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw_errno(ErrorKind::exhausted, "create " + pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  if (kept_) return;
  std::error_code ignored;  // a destructor has nobody to tell; the folder is the system's to clear then
  fs::remove_all(path_, ignored);
}

}  // namespace vime
