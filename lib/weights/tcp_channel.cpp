#include "weights/tcp_channel.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"

namespace vime::weights {
namespace {

constexpr uint64_t kMagic = 0x314c4e4843454d56ull;  // "VMECHNL1"
constexpr size_t kMaxToken = 256;
constexpr milliseconds kHelloTimeout{5000};

struct Hello {
  uint64_t magic;
  uint32_t rank;
  uint32_t token_bytes;
};

struct MessageHeader {
  uint64_t magic;
  uint64_t sequence;
  uint64_t bytes;
};

sockaddr_in make_address(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw Error(ErrorKind::refused, "weight channel: \"" + host + "\" is no numeric IPv4 address");
  }
  return address;
}

// False at the deadline; throws nothing else than what poll itself reports.
bool wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd poll_fd{fd, events, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(deadline.remaining().count()));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) throw_errno(ErrorKind::process_failed, "weight channel: poll");
  }
}

// Reads exactly `bytes`; returns "" or what went wrong.
std::string read_fully(int fd, void* into, uint64_t bytes, const Deadline& deadline) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      bytes -= static_cast<uint64_t>(got);
    } else if (got == 0) {
      return "connection closed by the peer";
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, deadline)) {
        return "nothing more arrived within " + format_seconds(static_cast<double>(deadline.timeout().count()) / 1000);
      }
    } else if (errno != EINTR) {
      return errno_text(errno);
    }
  }
  return "";
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

struct TcpSource::State {
  std::string token;
  int world_size = 0;
  UniqueFd listener;
  uint16_t port = 0;
  UniqueFd wake_read, wake_write;  // closing the write end ends the accept thread
  mutable std::mutex mutex;
  std::map<int, std::shared_ptr<UniqueFd>> peers;  // guarded by mutex
  std::map<int, uint64_t> sequences;               // guarded by mutex
  std::jthread thread;

  void accept_loop();
  void greet(UniqueFd fd);
};

void TcpSource::State::accept_loop() {
  for (;;) {
    pollfd fds[2] = {{listener.get(), POLLIN, 0}, {wake_read.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    if ((fds[0].revents & POLLIN) == 0) continue;
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd) greet(std::move(fd));
  }
}

void TcpSource::State::greet(UniqueFd fd) {
  const Deadline deadline(kHelloTimeout);
  Hello hello{};
  std::string said = read_fully(fd.get(), &hello, sizeof hello, deadline);
  std::string claimed;
  if (said.empty() && (hello.magic != kMagic || hello.token_bytes > kMaxToken)) said = "not a weight receiver";
  if (said.empty()) {
    claimed.resize(hello.token_bytes);
    said = read_fully(fd.get(), claimed.data(), claimed.size(), deadline);
  }
  if (said.empty() && claimed != token) said = "wrong run token";
  if (said.empty() && (hello.rank < 1 || static_cast<int>(hello.rank) >= world_size)) {
    said = "rank " + std::to_string(hello.rank) + " is outside of a world of " + std::to_string(world_size);
  }
  if (!said.empty()) {
    log::warning("weights", "weight channel: refused a connection: " + said);
    return;
  }
  set_no_delay(fd.get());
  const char accepted = 1;
  const int raw = fd.get();
  {
    const std::lock_guard lock(mutex);
    peers[static_cast<int>(hello.rank)] = std::make_shared<UniqueFd>(std::move(fd));
    sequences[static_cast<int>(hello.rank)] = 0;
  }
  // Registered first: a receiver that has the answer may be sent to at once.
  if (::send(raw, &accepted, 1, MSG_NOSIGNAL) != 1)
    log::warning("weights", "weight channel: a receiver left during its hello");
}

TcpSource::TcpSource(const std::string& host, std::string token, int world_size) : state_(std::make_unique<State>()) {
  state_->token = std::move(token);
  state_->world_size = world_size;
  state_->listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!state_->listener) throw_errno(ErrorKind::exhausted, "weight channel: socket");
  sockaddr_in address = make_address(host, 0);
  const std::string what = "weight channel: listen on " + host;
  if (::bind(state_->listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(state_->listener.get(), 1024) != 0) {
    throw_errno(ErrorKind::exhausted, what);
  }
  socklen_t length = sizeof address;
  if (::getsockname(state_->listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw_errno(ErrorKind::exhausted, what);
  }
  state_->port = ntohs(address.sin_port);
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) throw_errno(ErrorKind::exhausted, what);
  state_->wake_read = UniqueFd(pipe_fds[0]);
  state_->wake_write = UniqueFd(pipe_fds[1]);
  state_->thread = std::jthread([state = state_.get()] { state->accept_loop(); });
}

TcpSource::~TcpSource() {
  state_->wake_write.reset();
  state_->thread.join();
}

uint16_t TcpSource::port() const {
  return state_->port;
}

std::vector<int> TcpSource::connected() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<int> ranks;
  for (const auto& [rank, fd] : state_->peers) ranks.push_back(rank);
  return ranks;
}

namespace {

// One receiver's share of a message on its way.
struct Outgoing {
  int rank;
  std::shared_ptr<UniqueFd> fd;
  MessageHeader header;
  uint64_t sent = 0;  // of header and payload together
};

// Writes what the socket takes; returns "" or what went wrong.
std::string write_some(Outgoing& out, const std::byte* data) {
  const uint64_t total = sizeof(MessageHeader) + out.header.bytes;
  while (out.sent < total) {
    const bool in_header = out.sent < sizeof(MessageHeader);
    const void* from = in_header ? reinterpret_cast<const std::byte*>(&out.header) + out.sent
                                 : data + (out.sent - sizeof(MessageHeader));
    const uint64_t left = in_header ? sizeof(MessageHeader) - out.sent : total - out.sent;
    const ssize_t wrote = ::send(out.fd->get(), from, left, MSG_DONTWAIT | MSG_NOSIGNAL | (in_header ? MSG_MORE : 0));
    if (wrote < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return "";
      if (errno == EINTR) continue;
      return errno == EPIPE || errno == ECONNRESET ? "connection closed by the peer" : errno_text(errno);
    }
    out.sent += static_cast<uint64_t>(wrote);
  }
  return "";
}

}  // namespace

std::map<int, std::string> TcpSource::send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                           std::chrono::milliseconds timeout,
                                           const std::function<bool(int)>& abandoned) {
  std::map<int, std::string> failed;
  std::vector<Outgoing> open;
  {
    const std::lock_guard lock(state_->mutex);
    for (const int rank : ranks) {
      const auto peer = state_->peers.find(rank);
      if (peer == state_->peers.end()) {
        failed[rank] = "not connected to the weight channel";
      } else {
        open.push_back({rank, peer->second, {kMagic, state_->sequences[rank]++, bytes}, 0});
      }
    }
  }
  const Deadline deadline(timeout);
  const uint64_t total = sizeof(MessageHeader) + bytes;
  while (!open.empty()) {
    for (Outgoing& out : open) {
      std::string problem = write_some(out, data);
      if (problem.empty() && out.sent < total) {
        if (abandoned(out.rank)) problem = "given up";
        if (deadline.passed())
          problem = "took " + format_bytes(out.sent) + " of " + format_bytes(total) + " within " +
                    format_seconds(static_cast<double>(timeout.count()) / 1000);
      }
      if (!problem.empty()) failed[out.rank] = problem;
    }
    std::erase_if(open, [&](const Outgoing& out) { return out.sent == total || failed.contains(out.rank); });
    std::vector<pollfd> fds;
    for (const Outgoing& out : open) fds.push_back({out.fd->get(), POLLOUT, 0});
    if (!fds.empty())
      ::poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(50, deadline.remaining().count())));
  }
  // A receiver that missed part of a message can never find the next one: its connection is of no use.
  const std::lock_guard lock(state_->mutex);
  for (const auto& [rank, problem] : failed) state_->peers.erase(rank);
  return failed;
}

TcpReceiver::TcpReceiver(const TcpAddress& address, int rank, std::chrono::milliseconds timeout)
    : peer_("weight source at " + address.host + ":" + std::to_string(address.port)), timeout_(timeout) {
  const Deadline deadline(timeout);
  sockaddr_in target = make_address(address.host, address.port);
  fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) throw_errno(ErrorKind::exhausted, peer_);
  if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&target), sizeof target) != 0) {
    if (errno != EINPROGRESS) throw_errno(ErrorKind::process_failed, peer_);
    if (!wait_for(fd_.get(), POLLOUT, deadline)) deadline.check(peer_);
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) throw Error(ErrorKind::process_failed, peer_ + ": " + errno_text(error));
  }
  set_no_delay(fd_.get());
  const Hello hello{kMagic, static_cast<uint32_t>(rank), static_cast<uint32_t>(address.token.size())};
  std::string greeting(reinterpret_cast<const char*>(&hello), sizeof hello);
  greeting += address.token;
  // Far smaller than any socket buffer, so one call takes it whole.
  if (::send(fd_.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(greeting.size())) {
    throw_errno(ErrorKind::process_failed, peer_ + ": hello");
  }
  char accepted = 0;
  const std::string problem = read_fully(fd_.get(), &accepted, 1, deadline);
  if (!problem.empty() || accepted != 1) {
    throw Error(ErrorKind::process_failed, peer_ + " refused rank " + std::to_string(rank) + ": " + problem);
  }
}

bool TcpReceiver::closed() const {
  char byte = 0;
  const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void TcpReceiver::read_exactly(void* into, uint64_t bytes, const std::string& what) {
  const std::string problem = read_fully(fd_.get(), into, bytes, Deadline(timeout_));
  if (!problem.empty()) throw Error(ErrorKind::process_failed, peer_ + ": " + what + ": " + problem);
}

void TcpReceiver::receive(std::byte* into, uint64_t bytes) {
  MessageHeader header{};
  read_exactly(&header, sizeof header, "message header");
  if (header.magic != kMagic || header.sequence != sequence_) {
    throw Error(ErrorKind::process_failed,
                peer_ + ": expected message " + std::to_string(sequence_) + ", found " +
                    (header.magic == kMagic ? std::to_string(header.sequence) : "other bytes"));
  }
  if (header.bytes != bytes) {
    throw Error(ErrorKind::process_failed, peer_ + ": message " + std::to_string(sequence_) + " has " +
                                               std::to_string(header.bytes) + " bytes, the request announced " +
                                               std::to_string(bytes));
  }
  ++sequence_;
  read_exactly(into, bytes, "payload of " + format_bytes(bytes));
}

}  // namespace vime::weights
