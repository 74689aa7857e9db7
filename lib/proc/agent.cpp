#include "proc/agent.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <set>
#include <thread>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "proc/process_table.hpp"
#include "proc/spawn.hpp"
#include "proc/wire.hpp"

namespace vime::proc {
namespace {

using std::chrono::seconds;

constexpr milliseconds kExecTimeout{10000};
constexpr milliseconds kSendTimeout{10000};
// What the agent may need beyond the grace: it gives up on what does not end after 3 s.
constexpr milliseconds kAgentSlack{4000};
constexpr milliseconds kReapTimeout{2000};
constexpr milliseconds kSweepTimeout{2000};
constexpr milliseconds kGlance{2};
// For a worker's arguments with a few long paths, and vime's variables.
constexpr size_t kArgumentRoomBytes = 8192;

// False when nothing could be read before the timeout; true also for an error or the end of the stream.
bool wait_readable(int fd, milliseconds timeout) {
  const Deadline deadline(timeout);
  for (;;) {
    pollfd polled{fd, POLLIN, 0};
    const int ready =
        ::poll(&polled, 1, static_cast<int>(std::min(deadline.remaining(), milliseconds(1 << 30)).count()));
    if (ready > 0) return true;
    if (deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) throw_errno(ErrorKind::internal, "wait for the agent");
  }
}

}  // namespace

struct Agent::State {
  std::string name;  // "vime agent (process 4711)"
  std::string mark;  // how the environment of all that it started begins
  pid_t pid = 0;
  UniqueFd socket;
  UniqueFd queued;   // eventfd: readable while `events` holds something that came with an earlier read
  UniqueFd watched;  // epoll over both
  std::string inbox;
  std::deque<Event> events;
  std::set<std::string> living;
  std::string bye;
  bool closed = false;  // shutdown() is over
  std::string lost;     // why the agent is lost, once it is

  void launch(const std::string& vime_binary, const std::string& run_id, const AgentOptions& options);
  void send(const Json& message, const std::vector<int>& descriptors = {});
  ssize_t send_some(const char* bytes, size_t size, const std::vector<int>& descriptors) const;
  bool receive();
  void take(const std::string& line);
  void lose();
  Event lost_event() const;
  std::optional<Event> end_agent(milliseconds timeout);
  void sweep() const;
  void show_queue();
};

void Agent::State::launch(const std::string& vime_binary, const std::string& run_id, const AgentOptions& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw_errno(ErrorKind::exhausted, "make a socket pair");
  UniqueFd near(ends[0]), far(ends[1]);
  socket = above_stdio(std::move(near));
  far = above_stdio(std::move(far));
  const UniqueFd null = open_null();
  SpawnRequest request;
  request.argv = {vime_binary, "agent", "--fd", std::to_string(far.get()), "--run-id", run_id};
  request.environment = current_environment();
  request.environment.erase("VIME_READY_FD");  // its pipe, if any, announces this process and not the agent
  if (options.preload) {
    request.argv.push_back("--preload");
    request.environment[kArgumentRoom] = std::string(kArgumentRoomBytes, ' ');
  }
  request.stdin_fd = request.stdout_fd = null.get();
  if (::fcntl(2, F_GETFD) < 0) request.stderr_fd = null.get();
  request.kept_fd = far.get();
  request.new_session = true;
  Spawned spawned = spawn(request);
  pid = spawned.pid;
  name = "vime agent (process " + std::to_string(pid) + ")";
  mark = "VIME_CHILD=" + run_id + "/" + std::to_string(pid) + "/";
  far.reset();
  std::string failure;
  if (!wait_readable(spawned.exec_pipe.get(), kExecTimeout)) {
    failure = "exec \"" + vime_binary + "\": no answer within 10 s";
  } else {
    failure = read_exec_outcome(spawned.exec_pipe.get(), vime_binary, "").failure;
  }
  if (failure.empty()) return;
  end_agent(milliseconds(0));
  throw Error(ErrorKind::process_failed, failure);
}

ssize_t Agent::State::send_some(const char* bytes, size_t size, const std::vector<int>& descriptors) const {
  iovec part{const_cast<char*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t carried_bytes = descriptors.size() * sizeof(int);
    VIME_CHECK(CMSG_SPACE(carried_bytes) <= sizeof control, "more descriptors than a child's stdin and stdout");
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(carried_bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(carried_bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), carried_bytes);
  }
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The descriptors go with the first bytes that the socket takes.
void Agent::State::send(const Json& message, const std::vector<int>& descriptors) {
  std::string text;
  try {
    text = message.dump() + "\n";
  } catch (const Json::exception&) {
    throw Error(ErrorKind::refused, "a command for the agent holds bytes that are not UTF-8");
  }
  const Deadline deadline(kSendTimeout);
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t written =
        send_some(text.data() + sent, text.size() - sent, sent == 0 ? descriptors : std::vector<int>());
    if (written >= 0) {
      sent += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      deadline.check(name);
      pollfd polled{socket.get(), POLLOUT, 0};
      ::poll(&polled, 1, static_cast<int>(deadline.remaining().count()));
    } else if (errno != EINTR) {
      throw_errno(ErrorKind::process_failed, "send to " + name);
    }
  }
}

// Takes what is there. False at the end of the stream, and when it carries something else than the protocol.
bool Agent::State::receive() {
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    inbox.append(buffer, static_cast<size_t>(got));
    try {
      while (auto line = take_line(inbox)) take(*line);
    } catch (const Error& error) {
      log::error("proc", error.what());
      return false;
    }
    if (inbox.size() > kLongestLine) return false;
  }
}

void Agent::State::take(const std::string& line) {
  const Json message = parse_json(line, "message of " + name);
  if (json_string(message, "event", "message of " + name) == "bye") {
    bye = json_string(message, "reason", "message of " + name);
    return;
  }
  Event event = event_from(message);
  if (event.kind == Event::Kind::exited || event.kind == Event::Kind::failed) living.erase(event.role);
  events.push_back(std::move(event));
}

// The stream has ended though nobody asked for it: makes sure that the agent and all that it started are gone too.
void Agent::State::lose() {
  const std::optional<Event> end = end_agent(bye.empty() ? kGlance * 50 : kReapTimeout);
  sweep();
  lost = name + " " + (!bye.empty() ? "left: " + bye : end ? describe_exit(*end) : std::string("ended"));
}

Event Agent::State::lost_event() const {
  Event event;
  event.kind = Event::Kind::agent_lost;
  event.pid = pid;
  event.error = lost;
  return event;
}

// Waits for the agent's end, and forces it at the timeout. Nothing is returned when somebody else reaped it.
std::optional<Event> Agent::State::end_agent(milliseconds timeout) {
  Deadline deadline(timeout);
  bool killed = false;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended < 0 && errno != EINTR) return std::nullopt;
    if (ended == pid) {
      Event event;
      if (WIFEXITED(status)) event.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) event.signal = WTERMSIG(status);
      return event;
    }
    if (deadline.passed()) {
      if (killed) return std::nullopt;
      ::kill(pid, SIGKILL);  // not reaped, so the number is still the agent's
      killed = true;
      deadline = Deadline(kReapTimeout);
    }
    std::this_thread::sleep_for(kGlance);
  }
}

// For an agent that ended without doing its work. The parent-death signal ends what it started itself; their children
// are found by the mark in their environment, which names this run and this agent.
void Agent::State::sweep() const {
  const Deadline deadline(kSweepTimeout);
  for (;;) {
    size_t left = 0;
    for (const ProcessEntry& entry : read_process_table()) {
      if (!entry.living || entry.pid == ::getpid() || !environment_has(entry.pid, mark, false)) continue;
      signal_process(entry, SIGKILL);
      ++left;
    }
    if (left == 0) return;
    if (deadline.passed()) {
      log::error("proc", std::to_string(left) + " processes that " + name + " started did not end on SIGKILL");
      return;
    }
    std::this_thread::sleep_for(kGlance * 5);
  }
}

void Agent::State::show_queue() {
  uint64_t count = 1;
  if (events.empty() && !(closed && !lost.empty())) {
    while (::read(queued.get(), &count, sizeof count) > 0) {
    }
  } else if (::write(queued.get(), &count, sizeof count) < 0 && errno != EAGAIN) {
    throw_errno(ErrorKind::internal, "show queued events of " + name);
  }
}

Agent::Agent(const std::string& vime_binary, const std::string& run_id, const AgentOptions& options)
    : state_(std::make_unique<State>()) {
  // Processes are recognised by the run id, so an empty one could match others'.
  VIME_CHECK(!run_id.empty(), "the agent needs a run id");
  State& state = *state_;
  state.queued = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  state.watched = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!state.queued || !state.watched) throw_errno(ErrorKind::exhausted, "start the agent: make its descriptors");
  try {
    state.launch(vime_binary, run_id, options);
  } catch (const Error& error) {
    throw error.within("start the agent");
  }
  for (const int fd : {state.queued.get(), state.socket.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(state.watched.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      const int error_number = errno;
      state.end_agent(milliseconds(0));
      throw Error(ErrorKind::exhausted, "start the agent: watch it: " + errno_text(error_number));
    }
  }
}

Agent::~Agent() {
  try {
    shutdown(seconds(5));
  } catch (const std::exception& error) {
    log::error("proc", std::string("end the agent: ") + error.what());
  }
}

void Agent::start(const Command& command) {
  State& state = *state_;
  VIME_CHECK(!state.closed, "start \"" + command.role + "\" after shutdown");
  VIME_CHECK(!command.role.empty() && !command.argv.empty(), "a command needs a role and a program");
  VIME_CHECK((command.stdin_fd < 0) == (command.stdout_fd < 0), "a command has both stdin and stdout or neither");
  VIME_CHECK(state.living.count(command.role) == 0, "role \"" + command.role + "\" is taken by a process that lives");
  if (!state.lost.empty()) throw Error(ErrorKind::process_failed, "start \"" + command.role + "\": " + state.lost);
  try {
    std::vector<int> descriptors;
    if (command.stdin_fd >= 0) descriptors = {command.stdin_fd, command.stdout_fd};
    state.send(start_message(command), descriptors);
  } catch (const Error& error) {
    throw error.within("start \"" + command.role + "\"");
  }
  state.living.insert(command.role);
}

void Agent::stop(const std::string& role, std::chrono::milliseconds grace) {
  State& state = *state_;
  if (state.closed || !state.lost.empty()) return;  // nothing lives any more
  state.send({{"op", "stop"}, {"role", role}, {"grace_ms", grace.count()}});
}

std::optional<Event> Agent::next_event(std::chrono::milliseconds timeout) {
  State& state = *state_;
  const Deadline deadline(timeout);
  for (;;) {
    if (!state.events.empty()) {
      Event event = std::move(state.events.front());
      state.events.pop_front();
      state.show_queue();
      return event;
    }
    if (!state.lost.empty()) return state.lost_event();
    if (state.closed) return std::nullopt;
    if (!wait_readable(state.socket.get(), deadline.remaining())) return std::nullopt;
    if (!state.receive()) state.lose();
    state.show_queue();
  }
}

void Agent::shutdown(std::chrono::milliseconds grace) {
  State& state = *state_;
  if (state.closed || state.pid == 0) return;
  if (state.lost.empty()) {
    try {
      state.send({{"op", "shutdown"}, {"grace_ms", grace.count()}});
    } catch (const Error& error) {
      log::warning("proc", error.what());  // gone or stuck: what follows finds out which
    }
    const Deadline deadline(grace + kAgentSlack);
    while (wait_readable(state.socket.get(), deadline.remaining()) && state.receive()) {
    }
    if (state.bye.empty()) log::warning("proc", state.name + " did not finish its shutdown");
    const std::optional<Event> end = state.end_agent(state.bye.empty() ? milliseconds(0) : kReapTimeout);
    if (state.bye.empty()) state.sweep();
    if (!state.bye.empty() && end && end->code != 0) log::warning("proc", state.name + " " + describe_exit(*end));
  }
  state.closed = true;
  ::epoll_ctl(state.watched.get(), EPOLL_CTL_DEL, state.socket.get(), nullptr);
  state.socket.reset();
  state.show_queue();
}

int Agent::pid() const {
  return state_->pid;
}

int Agent::event_fd() const {
  return state_->watched.get();
}

}  // namespace vime::proc
