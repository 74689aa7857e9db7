#include "model/rank_links.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"

namespace vime::model {
namespace {

// First bytes on every connection: who calls, and where it listens itself.
struct Hello {
  uint64_t key = 0;
  int32_t rank = 0;
  uint32_t port = 0;
};

// What rank 0 tells everybody about everybody.
struct Whereabouts {
  uint32_t address = 0;  // network byte order
  uint32_t port = 0;
};

sockaddr_in socket_address(const std::string& address, uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &result.sin_addr) != 1) {
    throw Error(ErrorKind::refused, "expected an IPv4 address such as 127.0.0.1, found \"" + address + "\"");
  }
  return result;
}

std::string address_text(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

sockaddr_in name_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_in result{};
  socklen_t length = sizeof result;
  if (ask(fd, reinterpret_cast<sockaddr*>(&result), &length) != 0)
    throw_errno(ErrorKind::process_failed, "socket address");
  return result;
}

UniqueFd make_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw_errno(ErrorKind::exhausted, "socket");
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// False at the deadline.
bool wait_for(int fd, short events, const Deadline& deadline) {
  pollfd entry{fd, events, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, static_cast<int>(deadline.remaining().count()));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) throw_errno(ErrorKind::process_failed, "poll");
  }
}

// Null when nobody listens there (yet).
std::optional<UniqueFd> try_connect(const sockaddr_in& to, const Deadline& deadline) {
  UniqueFd fd = make_socket();
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    if (errno != EINPROGRESS && errno != ECONNREFUSED) throw_errno(ErrorKind::process_failed, "connect");
    if (errno == ECONNREFUSED || !wait_for(fd.get(), POLLOUT, deadline)) return std::nullopt;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return std::nullopt;
  }
  send_at_once(fd.get());
  return fd;
}

std::string seconds_text(const Deadline& deadline) {
  return format_seconds(static_cast<double>(deadline.timeout().count()) / 1e3);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(texts, ", ");
}

uint64_t key_of(const Membership& membership) {
  uint64_t key = mix_key(0x76696d65, static_cast<uint64_t>(membership.size));
  for (const char c : membership.name + '\n' + membership.token) key = mix_key(key, static_cast<unsigned char>(c));
  return key;
}

}  // namespace

MeetingPoint::MeetingPoint(const std::string& address, uint16_t port) : address_(address), fd_(make_socket()) {
  const sockaddr_in at = socket_address(address, port);
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 || ::listen(fd_.get(), 256) != 0) {
    throw_errno(ErrorKind::exhausted, "listen on " + address + ":" + std::to_string(port));
  }
  port_ = ntohs(name_of(fd_.get(), ::getsockname).sin_port);
}

RankLinks::RankLinks(Membership membership, MeetingPoint point) : membership_(std::move(membership)) {
  VIME_CHECK(membership_.rank == 0, "the meeting point is rank 0's");
  host_links(point);
}

RankLinks::RankLinks(Membership membership, const std::string& address, uint16_t port)
    : membership_(std::move(membership)) {
  VIME_CHECK(membership_.rank > 0 && membership_.rank < membership_.size,
             "rank " + std::to_string(membership_.rank) + " of " + std::to_string(membership_.size));
  join_links(address, port);
}

void RankLinks::fail(const std::string& what) const {
  throw Error(ErrorKind::process_failed, "group \"" + membership_.name + "\", rank " +
                                             std::to_string(membership_.rank) + " of " +
                                             std::to_string(membership_.size) + ": " + what);
}

void RankLinks::send_all(int fd, const void* data, std::size_t bytes, const Deadline& deadline,
                         const std::string& to) const {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      bytes -= static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLOUT, deadline)) fail("joining: " + to + " did not read within " + seconds_text(deadline));
    } else if (errno != EINTR) {
      fail("joining: send to " + to + ": " + errno_text(errno));
    }
  }
}

void RankLinks::receive_all(int fd, void* data, std::size_t bytes, const Deadline& deadline,
                            const std::string& from) const {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<std::size_t>(got);
    } else if (got == 0) {
      fail("joining: " + from + " closed the connection: it waits for another group name, size or token");
    } else if (errno == EAGAIN) {
      if (!wait_for(fd, POLLIN, deadline)) fail("joining: " + from + " said nothing within " + seconds_text(deadline));
    } else if (errno != EINTR) {
      fail("joining: receive from " + from + ": " + errno_text(errno));
    }
  }
}

// Takes connections until every expected rank has said hello. Callers without the key are dropped; one that says
// nothing keeps nobody else waiting.
void RankLinks::accept_ranks(const MeetingPoint& point, std::vector<int> expected, std::vector<uint16_t>* ports,
                             const Deadline& deadline) {
  struct Caller {
    UniqueFd fd;
    std::size_t got = 0;
    Hello hello;
  };
  std::vector<Caller> callers;
  while (!expected.empty()) {
    std::vector<pollfd> polled = {{point.fd(), POLLIN, 0}};
    for (const Caller& caller : callers) polled.push_back({caller.fd.get(), POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(deadline.remaining().count()));
    if (ready < 0 && errno != EINTR) throw_errno(ErrorKind::process_failed, "poll");
    if (ready == 0) {
      fail("waited " + seconds_text(deadline) + " for " + ranks_text(expected) + " to join at " + point.address() +
           ":" + std::to_string(point.port()));
    }
    for (std::size_t i = callers.size(); i-- > 0;) {
      if (polled[i + 1].revents == 0) continue;
      Caller& caller = callers[i];
      const ssize_t got =
          ::recv(caller.fd.get(), reinterpret_cast<char*>(&caller.hello) + caller.got, sizeof(Hello) - caller.got, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      caller.got += got > 0 ? static_cast<std::size_t>(got) : 0;
      if (got > 0 && caller.got < sizeof(Hello)) continue;
      const auto known = std::find(expected.begin(), expected.end(), caller.hello.rank);
      if (got > 0 && caller.hello.key == key_ && known != expected.end()) {
        const auto rank = static_cast<std::size_t>(*known);
        expected.erase(known);
        send_at_once(caller.fd.get());
        links_[rank] = std::move(caller.fd);
        if (ports != nullptr) (*ports)[rank] = static_cast<uint16_t>(caller.hello.port);
      }
      callers.erase(callers.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (polled[0].revents != 0) {
      UniqueFd fd(::accept4(point.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (fd) callers.push_back({std::move(fd), 0, {}});
    }
  }
}

void RankLinks::host_links(const MeetingPoint& point) {
  key_ = key_of(membership_);
  local_address_ = point.address();
  const auto size = static_cast<std::size_t>(membership_.size);
  links_.resize(size);
  const Deadline deadline(membership_.timeout);
  std::vector<int> others;
  for (int rank = 1; rank < membership_.size; ++rank) others.push_back(rank);
  std::vector<uint16_t> ports(size);
  accept_ranks(point, others, &ports, deadline);
  std::vector<Whereabouts> table(size);
  for (std::size_t rank = 1; rank < size; ++rank) {
    table[rank] = {name_of(links_[rank].get(), ::getpeername).sin_addr.s_addr, ports[rank]};
  }
  for (std::size_t rank = 1; rank < size; ++rank) {
    send_all(links_[rank].get(), table.data(), sizeof(Whereabouts) * size, deadline, "rank " + std::to_string(rank));
  }
}

void RankLinks::join_links(const std::string& address, uint16_t port) {
  key_ = key_of(membership_);
  const auto size = static_cast<std::size_t>(membership_.size);
  links_.resize(size);
  const Deadline deadline(membership_.timeout);
  const auto call = [&](const sockaddr_in& to, std::size_t rank, uint16_t own_port) {
    const std::string who =
        "rank " + std::to_string(rank) + " at " + address_text(to.sin_addr) + ":" + std::to_string(ntohs(to.sin_port));
    for (;;) {
      if (std::optional<UniqueFd> fd = try_connect(to, deadline)) {
        links_[rank] = std::move(*fd);
        break;
      }
      if (deadline.passed()) fail("waited " + seconds_text(deadline) + " for " + who + " to listen");
      ::poll(nullptr, 0, 10);  // rank 0 may not listen yet
    }
    if (rank != 0) {
      const Hello hello{key_, membership_.rank, own_port};
      send_all(links_[rank].get(), &hello, sizeof hello, deadline, who);
    }
  };
  call(socket_address(address, port), 0, 0);
  local_address_ = address_text(name_of(links_[0].get(), ::getsockname).sin_addr);
  const MeetingPoint own(local_address_);
  const Hello hello{key_, membership_.rank, own.port()};
  send_all(links_[0].get(), &hello, sizeof hello, deadline, "rank 0");
  std::vector<Whereabouts> table(size);
  receive_all(links_[0].get(), table.data(), sizeof(Whereabouts) * size, deadline, "rank 0");
  for (std::size_t rank = 1; rank < static_cast<std::size_t>(membership_.rank); ++rank) {
    call(socket_address(address_text({table[rank].address}), static_cast<uint16_t>(table[rank].port)), rank,
         own.port());
  }
  std::vector<int> later;
  for (int rank = membership_.rank + 1; rank < membership_.size; ++rank) later.push_back(rank);
  accept_ranks(own, later, nullptr, deadline);
}

}  // namespace vime::model
