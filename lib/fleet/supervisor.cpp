#include "fleet/supervisor.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "proc/process.hpp"

namespace vime::fleet {
namespace {

constexpr milliseconds kTick{20};

}  // namespace

std::string death_report(const proc::Event& event) {
  std::string text = event.role + " " + proc::describe_exit(event);
  if (!event.log_tail.empty()) {
    text += "; the end of its log:";
    for (const std::string& line : event.log_tail) text += "\n  | " + line;
  }
  return text + "\n  the whole log: " + event.log_path;
}

Supervisor::Supervisor(const std::string& vime_binary, const std::string& run_id,
                       std::function<void(const std::string&, const Json&)> on_event,
                       const proc::AgentOptions& agent_options)
    : agent_(vime_binary, run_id, agent_options), on_event_(std::move(on_event)) {}

void Supervisor::start(const proc::Command& command, std::function<void(const proc::Event&)> on_end) {
  agent_.start(command);
  if (on_end) on_end_[command.role] = std::move(on_end);
}

void Supervisor::stop(const std::string& role, milliseconds grace) {
  agent_.stop(role, grace);
}

// True when somebody had asked for this process's end. They may start the role again from within.
bool Supervisor::tell_end(const proc::Event& event) {
  const auto asked = on_end_.find(event.role);
  if (asked == on_end_.end()) return false;
  const auto on_end = std::move(asked->second);
  on_end_.erase(asked);
  on_end(event);
  return true;
}

void Supervisor::take(const proc::Event& event) {
  const auto tell = [&](const std::string& kind, const Json& fields) {
    if (on_event_) on_event_(kind, fields);
  };
  switch (event.kind) {
    case proc::Event::Kind::started:
      tell("started", {{"role", event.role}, {"pid", event.pid}});
      return;
    case proc::Event::Kind::ready:
      ready_[event.role] = event.info;
      tell("ready", {{"role", event.role}, {"info", event.info}});
      return;
    case proc::Event::Kind::exited:
      tell("exited", {{"role", event.role}, {"how", proc::describe_exit(event)}, {"expected", event.expected}});
      if (!tell_end(event) && !event.expected) throw Error(ErrorKind::process_failed, death_report(event));
      return;
    case proc::Event::Kind::failed:
      if (tell_end(event)) return;
      throw Error(ErrorKind::process_failed, "start " + event.role + ": " + event.error);
    case proc::Event::Kind::agent_lost:
      throw Error(ErrorKind::process_failed, "the node agent (process " + std::to_string(agent_.pid()) +
                                                 ") has gone; every process that it had started was ended with it");
  }
}

void Supervisor::take_all() {
  while (const std::optional<proc::Event> event = agent_.next_event(milliseconds(0))) take(*event);
}

void Supervisor::check() {
  take_all();
  if (heed_interrupts_ && proc::interrupted()) throw Error(ErrorKind::interrupted, "interrupted by the user");
}

std::map<std::string, Json> Supervisor::wait_ready(const std::vector<std::string>& roles, Deadline deadline) {
  const auto missing = [&] {
    std::vector<std::string> names;
    for (const std::string& role : roles) {
      if (!ready_.contains(role)) names.push_back(role);
    }
    return names;
  };
  while (!missing().empty()) {
    if (const std::optional<proc::Event> event = agent_.next_event(kTick)) take(*event);
    check();
    deadline.check("start of " + join(missing(), ", "));
  }
  std::map<std::string, Json> infos;
  for (const std::string& role : roles) infos[role] = ready_.at(role);
  return infos;
}

void Supervisor::wait_until(const std::function<bool()>& done, Deadline deadline, const std::string& waited_for) {
  while (!done()) {
    if (const std::optional<proc::Event> event = agent_.next_event(milliseconds(1))) take(*event);
    check();
    deadline.check(waited_for);
  }
}

void Supervisor::explain(const Error& error) {
  const Deadline deadline(milliseconds(1000));
  while (!deadline.passed()) {
    if (const std::optional<proc::Event> event = agent_.next_event(kTick)) take(*event);
    check();
  }
  throw error;
}

void Supervisor::shutdown(milliseconds grace) {
  agent_.shutdown(grace);
}

}  // namespace vime::fleet
