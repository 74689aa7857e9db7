#include "proc/wire.hpp"

#include <cstring>

namespace vime::proc {
namespace {

const std::string kEvent = "message of the agent";
const std::string kCommand = "message of the driver";

std::vector<std::string> strings(const Json& message, const std::string& key, const std::string& what) {
  std::vector<std::string> list;
  for (const Json& item : json_member(message, key, what)) {
    if (!item.is_string())
      throw Error(ErrorKind::process_failed, what + ": \"" + key + "\": expected a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

}  // namespace

Json start_message(const Command& command) {
  return {{"op", "start"},           {"role", command.role}, {"argv", command.argv},          {"env", command.env},
          {"log", command.log_path}, {"cwd", command.cwd},   {"stdio", command.stdin_fd >= 0}};
}

Command command_from(const Json& message) {
  Command command;
  command.role = json_string(message, "role", kCommand);
  command.argv = strings(message, "argv", kCommand);
  const Json& env = json_member(message, "env", kCommand);
  for (const auto& item : env.items()) command.env[item.key()] = json_string(env, item.key(), kCommand);
  command.log_path = json_string(message, "log", kCommand);
  command.cwd = json_string(message, "cwd", kCommand);
  return command;
}

Json event_message(const Event& event) {
  switch (event.kind) {
    case Event::Kind::started:
      return {{"event", "started"}, {"role", event.role}, {"pid", event.pid}};
    case Event::Kind::ready:
      return {{"event", "ready"}, {"role", event.role}, {"pid", event.pid}, {"info", event.info}};
    case Event::Kind::failed:
      return {{"event", "failed"}, {"role", event.role}, {"error", event.error}};
    default:
      break;
  }
  Json message{{"event", "exited"}, {"role", event.role}, {"pid", event.pid}};
  if (event.code) message["code"] = *event.code;
  if (event.signal) message["signal"] = *event.signal;
  message["expected"] = event.expected;
  message["log"] = event.log_path;
  message["tail"] = event.log_tail;
  return message;
}

Event event_from(const Json& message) {
  const std::string name = json_string(message, "event", kEvent);
  Event event;
  event.role = json_string(message, "role", kEvent);
  if (name == "failed") {
    event.kind = Event::Kind::failed;
    event.error = json_string(message, "error", kEvent);
    return event;
  }
  event.pid = static_cast<int>(json_int(message, "pid", kEvent));
  if (name == "started") {
    event.kind = Event::Kind::started;
  } else if (name == "ready") {
    event.kind = Event::Kind::ready;
    event.info = json_member(message, "info", kEvent);
  } else if (name == "exited") {
    event.kind = Event::Kind::exited;
    if (message.contains("code")) event.code = static_cast<int>(json_int(message, "code", kEvent));
    if (message.contains("signal")) event.signal = static_cast<int>(json_int(message, "signal", kEvent));
    event.expected = json_bool(message, "expected", kEvent);
    event.log_path = json_string(message, "log", kEvent);
    event.log_tail = strings(message, "tail", kEvent);
  } else {
    throw Error(ErrorKind::process_failed, kEvent + ": unknown event \"" + name + "\"");
  }
  return event;
}

std::string to_line(const Json& message) {
  return message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<std::string> take_line(std::string& buffer) {
  const size_t end = buffer.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = buffer.substr(0, end);
  buffer.erase(0, end + 1);
  return line;
}

std::string describe_exit(const Event& event) {
  if (event.code) return "exited with status " + std::to_string(*event.code);
  if (!event.signal) return "ended";
  const char* name = ::sigabbrev_np(*event.signal);
  return "was killed by signal " + std::to_string(*event.signal) +
         (name != nullptr ? " (SIG" + std::string(name) + ")" : std::string());
}

}  // namespace vime::proc
