#include "base/error.hpp"
#include "base/json.hpp"
#include "commands.hpp"
#include "proc/ask_fork.hpp"

namespace vime::app {
namespace {

// Of the driver library's first call; a machine with many GPUs and no persistence daemon needs some seconds.
constexpr milliseconds kAskTimeout{60'000};

Json inventory_json() {
  const devices::Inventory machine = find_gpus();
  Json uuids = Json::array();
  for (const devices::Gpu& gpu : machine.gpus) uuids.push_back(gpu.uuid);
  return {{"uuids", uuids}, {"reason", machine.reason}};
}

}  // namespace

std::vector<std::string> first_gpus(int count) {
  const std::string text =
      proc::ask_fork("the driver of this machine's GPUs", kAskTimeout, [] { return inventory_json().dump(); });
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
