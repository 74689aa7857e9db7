#include "proc/supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"
#include "proc/log_tail.hpp"
#include "proc/process.hpp"
#include "proc/spawn.hpp"
#include "proc/wire.hpp"

namespace vime::proc {
namespace {

using std::chrono::seconds;

constexpr milliseconds kRound{20};        // between two looks at a tree that is being ended
constexpr milliseconds kSlowRound{100};   // the same once it has taken a second
constexpr seconds kUnkillable{3};         // KILL has had no effect for so long: the process hangs in the kernel
constexpr milliseconds kLostGrace{1000};  // between TERM and KILL when the driver has gone or a signal ended the agent
constexpr size_t kTailLines = 20;

}  // namespace

Supervisor::Supervisor(UniqueFd stream, UniqueFd signals, std::string run_id, Preloaded preloaded)
    : stream_(std::move(stream)),
      signals_(std::move(signals)),
      run_id_(std::move(run_id)),
      preloaded_(std::move(preloaded)) {}

int Supervisor::serve() {
  while (!done_) poll_once();
  send({{"event", "bye"}, {"reason", reason_}});
  const Deadline deadline(seconds(1));
  while (stream_ && !outbox_.empty() && !deadline.passed()) {
    pollfd writable{stream_.get(), POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(deadline.remaining().count()));
    write_stream();
  }
  return status_;
}

void Supervisor::poll_once() {
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0},
                             {stream_.get(), static_cast<short>(outbox_.empty() ? POLLIN : POLLIN | POLLOUT), 0}};
  for (const auto& child : children_) {
    polled.push_back({child->exec_pipe.get(), POLLIN, 0});
    polled.push_back({child->ready_pipe.get(), POLLIN, 0});
  }
  if (::poll(polled.data(), polled.size(), static_cast<int>(time_to_next_step().count())) < 0) return;
  if (polled[1].revents & POLLOUT) write_stream();
  if (polled[1].revents & ~POLLOUT) read_stream();
  // exec before ready, for each child: the driver hears "started" first, whichever pipe spoke first.
  for (const auto& child : children_) {
    settle_exec(*child);
    read_ready(*child);
  }
  read_signals();
  reap();
  advance_children();
  if (closing_ && children_.empty()) sweep_remaining();
}

milliseconds Supervisor::time_to_next_step() const {
  auto next = SteadyClock::now() + seconds(10);
  for (const auto& child : children_) {
    if (child->phase != Child::Phase::running) next = std::min(next, child->next_round);
  }
  if (closing_) next = std::min({next, give_up_at_, children_.empty() ? next_sweep_ : next});
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - SteadyClock::now()));
}

// One read; keeps the descriptors that came along. The kernel never merges bytes across them, so they are here before
// the line that they belong to is complete.
ssize_t Supervisor::receive(char* buffer, size_t size) {
  iovec part{buffer, size};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(stream_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == ENOTSOCK) return ::read(stream_.get(), buffer, size);
  if (got < 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      received_.push_back(above_stdio(UniqueFd(fd)));
    }
  }
  return got;
}

void Supervisor::read_stream() {
  char buffer[65536];
  for (;;) {
    const ssize_t got = receive(buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) inbox_.append(buffer, static_cast<size_t>(got));
    while (auto line = take_line(inbox_)) take(*line);
    if (got > 0 && inbox_.size() <= kLongestLine) continue;
    // The driver has gone, or the stream carries something that is no protocol of ours.
    stream_.reset();
    begin_closing(kLostGrace, "the driver has gone");
    return;
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;  // reap() asks the kernel itself: such signals merge
    begin_closing(kLostGrace,
                  "SIG" + std::string(::sigabbrev_np(signal)) + " from process " + std::to_string(info.ssi_pid));
  }
}

void Supervisor::write_stream() {
  while (!outbox_.empty()) {
    const ssize_t written = ::write(stream_.get(), outbox_.data(), outbox_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) {
      outbox_.clear();  // nobody listens; the next read finds the end of the stream
      stream_.reset();
      begin_closing(kLostGrace, "the driver has gone");
    }
    if (written < 0) return;
    outbox_.erase(0, static_cast<size_t>(written));
  }
}

void Supervisor::send(const Json& message) {
  if (stream_) outbox_ += to_line(message);
}

void Supervisor::take(const std::string& line) {
  Event refusal;
  refusal.kind = Event::Kind::failed;
  try {
    const Json message = parse_json(line, "message of the driver");
    const std::string op = json_string(message, "op", "message of the driver");
    if (op == "start") {
      std::pair<UniqueFd, UniqueFd> stdio = take_stdio(message);
      Command command = command_from(message);
      refusal.role = command.role;
      start(std::move(command), std::move(stdio));
    } else if (op == "stop") {
      stop(json_string(message, "role", "stop"), milliseconds(json_int(message, "grace_ms", "stop")));
    } else if (op == "shutdown") {
      begin_closing(milliseconds(json_int(message, "grace_ms", "shutdown")), "shutdown");
    } else {
      throw Error(ErrorKind::process_failed, "message of the driver: unknown op \"" + op + "\"");
    }
  } catch (const Error& error) {
    refusal.error = error.what();
    send(event_message(refusal));
  }
}

std::pair<UniqueFd, UniqueFd> Supervisor::take_stdio(const Json& message) {
  std::pair<UniqueFd, UniqueFd> stdio;
  if (!json_bool(message, "stdio", "start")) return stdio;
  for (UniqueFd* end : {&stdio.first, &stdio.second}) {
    if (received_.empty()) break;
    *end = std::move(received_.front());
    received_.pop_front();
  }
  return stdio;
}

void Supervisor::start(Command command, std::pair<UniqueFd, UniqueFd> stdio) {
  if (closing_) throw Error(ErrorKind::process_failed, "the agent is shutting down");
  for (const auto& child : children_) {
    if (child->command.role == command.role) {
      throw Error(ErrorKind::process_failed,
                  "role \"" + command.role + "\" is taken by process " + std::to_string(child->pid));
    }
  }
  auto child = std::make_unique<Child>();
  child->command = std::move(command);
  child->stdin_end = std::move(stdio.first);
  child->stdout_end = std::move(stdio.second);
  launch(*child, run_id_, run_id_ + "/" + std::to_string(::getpid()) + "/" + std::to_string(++started_), preloaded_);
  children_.push_back(std::move(child));
}

void Supervisor::stop(const std::string& role, milliseconds grace) {
  for (const auto& child : children_) {
    if (child->command.role == role) begin_ending(*child, grace);
  }
}

void Supervisor::fail(Child& child, const std::string& why) {
  child.failure = why;
  if (child.phase != Child::Phase::sweeping) begin_sweeping(child);
}

void Supervisor::settle_exec(Child& child) {
  if (!child.exec_pipe) return;
  const ExecOutcome outcome = read_exec_outcome(child.exec_pipe.get(), child.command.argv[0], child.command.cwd);
  if (!outcome.settled) return;
  child.exec_pipe.reset();
  if (!outcome.failure.empty()) {
    fail(child, outcome.failure);
    return;
  }
  Event event;
  event.role = child.command.role;
  event.pid = child.pid;
  send(event_message(event));
}

void Supervisor::read_ready(Child& child) {
  while (child.ready_pipe && !child.exec_pipe) {
    char buffer[4096];
    const ssize_t got = ::read(child.ready_pipe.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) child.ready_text.append(buffer, static_cast<size_t>(got));
    auto line = take_line(child.ready_text);
    if (!line && got > 0 && child.ready_text.size() <= kLongestLine) continue;
    child.ready_pipe.reset();
    if (!line && child.ready_text.empty()) return;  // it closed the pipe without a word, as programs not of vime do
    try {
      Event event;
      event.kind = Event::Kind::ready;
      event.role = child.command.role;
      event.pid = child.pid;
      event.info = parse_json(line ? *line : child.ready_text, "what \"" + child.command.role + "\" announced");
      send(event_message(event));
    } catch (const Error& error) {
      fail(child, error.what());
    }
  }
}

void Supervisor::begin_ending(Child& child, milliseconds grace) {
  const auto kill_at = SteadyClock::now() + std::max(grace, milliseconds(0));
  if (child.phase == Child::Phase::ending) child.kill_at = std::min(child.kill_at, kill_at);
  if (child.phase != Child::Phase::running) return;
  child.phase = Child::Phase::ending;
  child.expected = true;
  child.kill_at = kill_at;
  tree_of(child, children_);    // remembers who belongs to it while descent still tells
  ::kill(-child.pid, SIGTERM);  // not reaped yet, so the number is still its own
  child.next_round = SteadyClock::now();
}

void Supervisor::begin_sweeping(Child& child) {
  child.phase = Child::Phase::sweeping;
  child.sweep_start = child.next_round = SteadyClock::now();
  if (!child.reaped) ::kill(-child.pid, SIGKILL);
}

void Supervisor::begin_closing(milliseconds grace, const std::string& reason) {
  const auto give_up_at = SteadyClock::now() + std::max(grace, milliseconds(0)) + kUnkillable;
  give_up_at_ = closing_ ? std::min(give_up_at_, give_up_at) : give_up_at;
  if (!closing_) reason_ = reason;
  closing_ = true;
  next_sweep_ = SteadyClock::now();
  for (const auto& child : children_) begin_ending(*child, grace);
}

void Supervisor::reap() {
  for (;;) {
    siginfo_t status{};
    // WNOWAIT: as long as the dead child is not reaped, its number is not given to another process or group.
    if (::waitid(P_ALL, 0, &status, WEXITED | WNOHANG | WNOWAIT) != 0 || status.si_pid == 0) return;
    for (const auto& child : children_) {
      if (child->pid == status.si_pid && !child->reaped) take_exit(*child, status);
    }
    // Others are orphans that came to the agent as the subreaper.
    while (::waitpid(status.si_pid, nullptr, WNOHANG) < 0 && errno == EINTR) {
    }
  }
}

void Supervisor::take_exit(Child& child, const siginfo_t& status) {
  settle_exec(child);
  read_ready(child);
  if (status.si_code == CLD_EXITED) {
    child.code = status.si_status;
  } else {
    child.signal = status.si_status;
  }
  // What is left of a child that was told to end may use up its grace; a child that ended by itself takes all with it.
  if (child.phase == Child::Phase::running) begin_sweeping(child);
  tree_of(child, children_);
  child.reaped = true;
  child.next_round = SteadyClock::now();
}

void Supervisor::advance_children() {
  for (size_t i = 0; i < children_.size();) {
    if (!advance(*children_[i])) {
      ++i;
      continue;
    }
    report_end(*children_[i]);
    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool Supervisor::advance(Child& child) {
  const auto now = SteadyClock::now();
  if (child.phase == Child::Phase::running || now < child.next_round) return false;
  const std::vector<ProcessEntry> members = tree_of(child, children_);
  if (child.phase == Child::Phase::ending) {
    const bool group_lives = std::any_of(members.begin(), members.end(),
                                         [&](const ProcessEntry& member) { return member.group == child.pid; });
    if (now < child.kill_at && (group_lives || !child.reaped)) {
      child.next_round = std::min(child.kill_at, now + kSlowRound);
      return false;
    }
    begin_sweeping(child);
  }
  for (const ProcessEntry& member : members) signal_process(member, SIGKILL);
  if (child.reaped && members.empty()) return true;
  if (child.reaped && now - child.sweep_start > kUnkillable) {
    log::error("proc", "process " + std::to_string(members.front().pid) + " of \"" + child.command.role +
                           "\" is still there 3 s after SIGKILL");
    return true;
  }
  child.next_round = now + (now - child.sweep_start < seconds(1) ? kRound : kSlowRound);
  return false;
}

void Supervisor::report_end(const Child& child) {
  Event event;
  event.role = child.command.role;
  event.pid = child.pid;
  if (!child.failure.empty()) {
    event.kind = Event::Kind::failed;
    event.error = child.failure;
  } else {
    event.kind = Event::Kind::exited;
    event.code = child.code;
    event.signal = child.signal;
    event.expected = child.expected;
    event.log_path = child.command.log_path;
    event.log_tail = log_tail(child.command.log_path, child.log_start, kTailLines);
  }
  send(event_message(event));
}

void Supervisor::sweep_remaining() {
  if (SteadyClock::now() < next_sweep_) return;
  const std::vector<ProcessEntry> left = living_descendants(read_process_table(), ::getpid());
  for (const ProcessEntry& entry : left) signal_process(entry, SIGKILL);
  done_ = left.empty();
  if (!done_ && SteadyClock::now() >= give_up_at_) {
    log::error("proc",
               "process " + std::to_string(left.front().pid) + " does not end on SIGKILL; the agent leaves without it");
    status_ = 1;
    done_ = true;
  }
  next_sweep_ = SteadyClock::now() + kRound;
}

int agent_main(int fd, const std::string& run_id, Preloaded preloaded) {
  set_title("vime agent " + run_id);
  ::unsetenv(kArgumentRoom);
  UniqueFd stream(fd);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) != 0) {
    stream.release();
    throw_errno(ErrorKind::refused, "agent: descriptor " + std::to_string(fd) + " of --fd");
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t watched;
  ::sigemptyset(&watched);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&watched, signal);
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  UniqueFd signals(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) throw_errno(ErrorKind::exhausted, "agent: watch for signals");
  return Supervisor(above_stdio(std::move(stream)), std::move(signals), run_id, std::move(preloaded)).serve();
}

}  // namespace vime::proc
