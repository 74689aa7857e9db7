#include "proc/child.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "proc/spawn.hpp"

namespace vime::proc {

void launch(Child& child, const std::string& run_id, const std::string& mark_value, const Preloaded& preloaded) {
  const Command& command = child.command;
  UniqueFd log(::open(command.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!log) throw_errno(ErrorKind::process_failed, "open log \"" + command.log_path + "\"");
  log = above_stdio(std::move(log));
  struct stat log_status {};
  if (::fstat(log.get(), &log_status) == 0) child.log_start = log_status.st_size;

  const UniqueFd null = open_null();
  auto [ready_read, ready_write] = make_pipe();
  child.mark = "VIME_CHILD=" + mark_value;
  SpawnRequest request;
  request.argv = command.argv;
  request.environment = current_environment();
  for (const auto& [name, value] : command.env) request.environment[name] = value;
  request.environment["VIME_RUN_ID"] = run_id;
  request.environment["VIME_CHILD"] = mark_value;
  request.environment["VIME_READY_FD"] = std::to_string(ready_write.get());
  request.cwd = command.cwd;
  request.stdin_fd = child.stdin_end ? child.stdin_end.get() : null.get();
  request.stdout_fd = child.stdout_end ? child.stdout_end.get() : log.get();
  request.stderr_fd = log.get();
  request.kept_fd = ready_write.get();
  request.dies_with_parent = true;
  if (preloaded.covers && preloaded.covers(command)) request.main = preloaded.main;
  Spawned spawned = spawn(request);
  child.stdin_end.reset();
  child.stdout_end.reset();
  child.pid = spawned.pid;
  child.exec_pipe = std::move(spawned.exec_pipe);
  child.ready_pipe = std::move(ready_read);
}

// Which processes belong to a child. Certain, and taken: the child itself, its process group, its session, whoever
// carries its mark in the environment, whoever was seen to descend from it earlier, and the descendants of all these.
// Everything else stays: an orphan (a child of the agent that the agent did not start) with a group and session of its
// own and without a mark may belong to another child that lives. Only when there is no other child can it be nobody
// else's, and then it goes too; otherwise it goes when the agent does.
std::vector<ProcessEntry> tree_of(Child& child, const Children& all) {
  const std::vector<ProcessEntry> table = read_process_table();
  const std::vector<ProcessEntry> ours = living_descendants(table, ::getpid());
  const bool is_alone = all.size() == 1 && all.front().get() == &child;
  const auto is_other_child = [&](pid_t pid) {
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& other) { return other.get() != &child && !other->reaped && other->pid == pid; });
  };
  // Once the child is reaped and its group is empty, another child may have got its number.
  const bool has_number = !is_other_child(child.pid);
  std::vector<ProcessEntry> members;
  const auto add = [&](const ProcessEntry& entry) {
    const bool there =
        std::any_of(members.begin(), members.end(), [&](const auto& member) { return member.pid == entry.pid; });
    if (there || is_other_child(entry.pid)) return;
    members.push_back(entry);
    const std::pair<pid_t, uint64_t> name{entry.pid, entry.start_time};
    if (std::find(child.known.begin(), child.known.end(), name) == child.known.end()) child.known.push_back(name);
  };
  for (const ProcessEntry& entry : ours) {
    const bool is_known =
        std::find(child.known.begin(), child.known.end(), std::pair{entry.pid, entry.start_time}) != child.known.end();
    const bool is_orphan = entry.parent == ::getpid() && !is_other_child(entry.pid);
    const bool by_number = has_number && ((!child.reaped && entry.pid == child.pid) || entry.group == child.pid ||
                                          entry.session == child.pid);
    const bool by_mark = is_orphan && environment_has(entry.pid, child.mark, true);
    if (!is_alone && !is_known && !by_number && !by_mark) continue;
    add(entry);
    for (const ProcessEntry& descendant : living_descendants(table, entry.pid)) add(descendant);
  }
  return members;
}

}  // namespace vime::proc
