#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/strings.hpp"
#include "commands.hpp"
#include "devices/devices.hpp"

namespace vime::app {

std::vector<std::string> first_gpus(int count) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno(ErrorKind::exhausted, "make a pipe");
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw_errno(ErrorKind::exhausted, "fork");
  if (child == 0) {
    std::string text;
    for (const devices::Gpu& gpu : devices::find_gpus().gpus) text += gpu.uuid + ",";
    const bool written = ::write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  out.reset();
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = ::read(in.get(), piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<std::size_t>(got));
  }
  ::waitpid(child, nullptr, 0);
  std::vector<std::string> uuids = split(text, ',');
  uuids.pop_back();  // what follows the last comma
  if (uuids.size() < static_cast<std::size_t>(count)) {
    throw Error(ErrorKind::refused, std::to_string(count) + " GPUs wanted, " + std::to_string(uuids.size()) + " found");
  }
  uuids.resize(static_cast<std::size_t>(count));
  return uuids;
}

}  // namespace vime::app
