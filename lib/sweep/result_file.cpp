#include "sweep/result_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.hpp"

namespace vime::sweep {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw Error(ErrorKind::refused, "--json " + name + ": " + reason);
}

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::character:
    case fs::file_type::block:
      return "a device";
    case fs::file_type::fifo:
      return "a FIFO";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "a special file";
  }
}

// What symbolic links lead to, even where that is not there yet. The caller has ruled out that they lead in circles.
fs::path target_of(fs::path path) {
  std::error_code ignored;
  while (fs::is_symlink(fs::symlink_status(path, ignored))) {
    path = path.parent_path() / fs::read_symlink(path);  // an absolute target replaces the whole
  }
  return path;
}

// The file is written under another name beside it, which permissions alone do not tell.
void require_writable(const std::string& name, const fs::path& path) {
  const std::string probe = path.string() + ".tmp-" + std::to_string(::getpid());
  const UniqueFd made(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!made) {
    refuse(name, "the folder " + path.parent_path().string() + " cannot be written: " + errno_text(errno));
  }
  ::unlink(probe.c_str());
}

}  // namespace

ResultFile::ResultFile(const std::string& name) : name_(name) {
  if (name.empty()) throw Error(ErrorKind::refused, "--json \"\": the name of the file is empty");
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (status.type() == fs::file_type::none) refuse(name, error.message());
  if (status.type() != fs::file_type::not_found && status.type() != fs::file_type::regular) {
    refuse(name, std::string("it is ") + kind_of(status.type()) + "; expected the name of a file");
  }
  const fs::path path = target_of(fs::absolute(name));
  if (!path.has_filename()) refuse(name, "it ends with a slash; expected the name of a file");
  const fs::path folder = fs::canonical(path.parent_path(), error);
  if (error || !fs::is_directory(folder)) refuse(name, "there is no folder " + path.parent_path().string());
  path_ = folder / path.filename();
  require_writable(name, path_);
}

void ResultFile::clear() const {
  std::error_code error;
  fs::remove(path_, error);
  if (error) refuse(name_, "the old file cannot be removed: " + error.message());
}

void ResultFile::write(const Json& result) const {
  write_file_atomic(path_, result.dump(2) + "\n");
}

}  // namespace vime::sweep
