// TCP by hand, for what a well-behaved client or server never does. Every wait ends after 10 s with a failed REQUIRE.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "base/files.hpp"

namespace raw {

inline sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Connection {
 public:
  explicit Connection(vime::UniqueFd fd) : fd_(std::move(fd)) {
    const timeval limit{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  static Connection to(uint16_t port) {
    vime::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return Connection(std::move(fd));
  }

  void send(const std::string& text) {
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = ::send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) break;  // the peer may have had enough
      sent += static_cast<std::size_t>(count);
    }
  }

  // Reads until `end` has come; gives all that came.
  std::string receive_until(const std::string& end) {
    while (received_.find(end) == std::string::npos) REQUIRE(receive_some());
    return received_;
  }

  // Reads until `count` bytes have come; gives all that came since the last call.
  std::string receive(std::size_t count) {
    while (received_.size() < count) REQUIRE(receive_some());
    return std::exchange(received_, "");
  }

  // Reads until the peer closes.
  std::string receive_all() {
    while (receive_some()) {
    }
    return received_;
  }

  bool is_reset_within(std::chrono::milliseconds time) const {
    pollfd error_only{fd_.get(), 0, 0};
    return ::poll(&error_only, 1, static_cast<int>(time.count())) == 1 && (error_only.revents & POLLERR) != 0;
  }

  void shut_down_sending() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

 private:
  bool receive_some() {
    char buffer[65536];
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    REQUIRE_MESSAGE(count >= 0, "recv failed or nothing came for 10 s");
    received_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }

  vime::UniqueFd fd_;
  std::string received_;
};

// Takes a port; listens only when asked to, so that a port that refuses can be had.
class Listener {
 public:
  explicit Listener(bool listening = true) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    const timeval limit{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (listening) REQUIRE(::listen(fd_.get(), 16) == 0);
  }

  uint16_t port() const { return port_; }
  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }

  Connection accept() {
    vime::UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(fd.get() >= 0);
    return Connection(std::move(fd));
  }

 private:
  vime::UniqueFd fd_;
  uint16_t port_ = 0;
};

}  // namespace raw
