#include "support/vllm/socket.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "support/vllm/failures.hpp"

namespace vime::stand_in {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{20};

UniqueFd try_connect(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  return connected ? std::move(fd) : UniqueFd();
}

}  // namespace

Socket Socket::connect(const std::string& host, uint16_t port, std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  while (true) {
    UniqueFd fd = try_connect(host, port);
    if (fd) {
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const timeval limit{static_cast<time_t>(timeout.count() / 1000), 0};
      ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      return Socket(std::move(fd));
    }
    if (deadline.passed()) {
      throw WorkerError("The client socket has timed out after " + std::to_string(timeout.count()) +
                        "ms while trying to connect to (" + host + ", " + std::to_string(port) + ").");
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void Socket::send(const std::string& bytes) const {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw WorkerError("Connection was closed by the remote: " + errno_text(errno));
    sent += static_cast<std::size_t>(count);
  }
}

void Socket::receive(void* into, std::size_t count) const {
  auto* to = static_cast<char*>(into);
  while (count > 0) {
    const ssize_t got = ::recv(fd_.get(), to, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) throw WorkerError("Connection was closed by the remote before all bytes had come");
    if (got < 0) throw WorkerError("recv: " + errno_text(errno));
    to += got;
    count -= static_cast<std::size_t>(got);
  }
}

std::string Socket::receive(std::size_t count) const {
  std::string bytes(count, '\0');
  receive(bytes.data(), count);
  return bytes;
}

}  // namespace vime::stand_in
