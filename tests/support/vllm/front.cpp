#include "support/vllm/front.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "http/target.hpp"

namespace vime::stand_in {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

const char* reason_of(int status) {
  return status == 200 ? "OK" : status < 500 ? "Client Error" : "Server Error";
}

class Connection {
 public:
  explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  void serve(const Handle& handle) {
    while (true) {
      const auto request = read();
      if (!request) return;
      const Answer answer = handle(*request, [this] { return is_gone(); });
      if (!write(answer, request->header("connection") != "close")) return;
    }
  }

 private:
  bool fill() {
    char buffer[65536];
    ssize_t count = 0;
    do count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    while (count < 0 && errno == EINTR);
    if (count <= 0) return false;
    pending_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }

  std::optional<http::ServerRequest> read() {
    std::size_t end = 0;
    while ((end = pending_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) return std::nullopt;
    }
    http::ServerRequest request;
    if (!parse_head(pending_.substr(0, end), request)) {
      send("HTTP/1.1 400 Bad Request\r\ncontent-length: 30\r\nconnection: close\r\n\r\nInvalid HTTP request received.");
      return std::nullopt;
    }
    pending_.erase(0, end + 4);
    const std::size_t length = std::strtoull(request.header("content-length").c_str(), nullptr, 10);
    if (length > kMostBytes || !request.header("transfer-encoding").empty()) return std::nullopt;
    if (request.header("expect") == "100-continue" && pending_.size() < length) send("HTTP/1.1 100 Continue\r\n\r\n");
    while (pending_.size() < length) {
      if (!fill()) return std::nullopt;
    }
    request.body = pending_.substr(0, length);
    pending_.erase(0, length);
    return request;
  }

  static bool parse_head(const std::string& head, http::ServerRequest& request) {
    std::vector<std::string> lines = split(head, '\n');
    const std::vector<std::string> first = split(trim(lines.front()), ' ');
    if (first.size() != 3) return false;
    request.method = first[0];
    auto target = http::parse_target(first[1]);
    if (!target) return false;
    request.path = std::move(target->path);
    request.query = std::move(target->query);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      const std::size_t colon = lines[i].find(':');
      if (colon == std::string::npos) return false;
      std::string name = lines[i].substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers[name] = trim(lines[i].substr(colon + 1));
    }
    return true;
  }

  // Bytes of a next request are no sign of leaving.
  bool is_gone() const {
    pollfd polled{fd_.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  bool send(const std::string& bytes) const {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }

  bool write(const Answer& answer, bool keep_alive) {
    if (answer.ending == Ending::reset) {
      const linger at_once{1, 0};
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      return false;
    }
    const http::Response& response = answer.response;
    std::string bytes = "HTTP/1.1 " + std::to_string(response.status) + " " + reason_of(response.status) +
                        "\r\nserver: uvicorn\r\ncontent-length: " + std::to_string(response.body.size()) + "\r\n";
    if (!response.body.empty()) bytes += "content-type: " + response.content_type + "\r\n";
    if (!keep_alive) bytes += "connection: close\r\n";
    bytes += "\r\n" + response.body;
    if (answer.ending == Ending::half) {
      send(bytes.substr(0, bytes.size() - (response.body.size() + 1) / 2));
      return false;
    }
    return send(bytes) && keep_alive;
  }

  UniqueFd fd_;
  std::string pending_;
};

}  // namespace

Front::Front(const std::string& host, uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::inet_pton(AF_INET, numeric.c_str(), &address.sin_addr) != 1)
    throw Error(ErrorKind::refused, "the stand-in listens on IPv4 addresses only, found " + host);
  if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw Error(ErrorKind::exhausted, "[Errno " + std::to_string(errno) +
                                          "] error while attempting to bind on address ('" + host + "', " +
                                          std::to_string(port) + "): " + errno_text(errno));
  }
  socklen_t size = sizeof address;
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
}

void Front::listen() const {
  if (::listen(fd_.get(), 4096) != 0) throw_errno(ErrorKind::exhausted, "listen");
}

void Front::serve(const Handle& handle) const {
  while (true) {
    const int fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    std::thread([&handle, connection = std::make_shared<Connection>(UniqueFd(fd))] {
      connection->serve(handle);
    }).detach();
  }
}

}  // namespace vime::stand_in
