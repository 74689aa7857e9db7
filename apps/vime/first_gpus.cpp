#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "commands.hpp"

namespace vime::app {
namespace {

std::string read_to_end(int fd) {
  std::string text;
  char piece[4096];
  for (ssize_t got = 0; (got = ::read(fd, piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(got));
  return text;
}

Json inventory_json() {
  const devices::Inventory machine = find_gpus();
  Json uuids = Json::array();
  for (const devices::Gpu& gpu : machine.gpus) uuids.push_back(gpu.uuid);
  return {{"uuids", uuids}, {"reason", machine.reason}};
}

}  // namespace

std::vector<std::string> first_gpus(int count) {
  int ends[2];
  if (::pipe(ends) != 0) throw_errno(ErrorKind::exhausted, "make a pipe");
  const UniqueFd in(ends[0]);
  UniqueFd out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw_errno(ErrorKind::exhausted, "fork");
  if (child == 0) {
    const std::string text = inventory_json().dump();
    const bool written = ::write(out.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(written ? 0 : 1);
  }
  out.reset();
  const std::string text = read_to_end(in.get());
  ::waitpid(child, nullptr, 0);
  const Json found = parse_json(text, "GPUs of this machine");
  auto uuids = found.at("uuids").get<std::vector<std::string>>();
  if (uuids.empty())
    throw Error(ErrorKind::refused, "there is no GPU to use: " + found.at("reason").get<std::string>());
  if (uuids.size() < static_cast<size_t>(count)) {
    throw Error(ErrorKind::refused,
                std::to_string(count) + " GPUs are wanted, this machine has " + std::to_string(uuids.size()));
  }
  uuids.resize(static_cast<size_t>(count));
  return uuids;
}

}  // namespace vime::app
