#include "http/server.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cerrno>
#include <chrono>
#include <exception>
#include <thread>
#include <unordered_set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "http/connection.hpp"
#include "http/descriptors.hpp"

namespace vime::http {
namespace {

constexpr int kListenBacklog = 4096;
constexpr std::chrono::milliseconds kAcceptRetry{100};

Tcp::endpoint endpoint_of(const ServerOptions& options) {
  error_code failure;
  const auto address = asio::ip::make_address(options.address, failure);
  if (failure) {
    throw Error(ErrorKind::refused, "listen on " + options.address + ": expected an IP address such as 127.0.0.1");
  }
  return {address, options.port};
}

void open_listener(Tcp::acceptor& acceptor, const ServerOptions& options) {
  const Tcp::endpoint endpoint = endpoint_of(options);
  const std::string what = "listen on " + options.address + ":" + std::to_string(options.port);
  // A child process must not inherit the port: it would stay taken after this process has ended.
  const int fd = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) throw_errno(ErrorKind::exhausted, what);
  acceptor.assign(endpoint.protocol(), fd);
  error_code failure;
  acceptor.set_option(asio::socket_base::reuse_address(true), failure);
  if (!failure) acceptor.bind(endpoint, failure);
  if (!failure) acceptor.listen(kListenBacklog, failure);
  if (failure == asio::error::address_in_use) {
    throw Error(ErrorKind::exhausted, what + ": " + errno_text(EADDRINUSE), "port 0 lets the kernel choose a free one");
  }
  if (failure) throw Error(ErrorKind::refused, what + ": " + failure.message());
}

}  // namespace

struct Server::State {
  explicit State(ServerOptions options);
  asio::awaitable<void> accept_all();
  int accept_ready();
  asio::awaitable<void> serve(std::shared_ptr<Connection> connection);
  void run();
  void close_all();

  // Responders hold it weakly; it goes last, because sockets and timers refer to it.
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  Service service;
  Tcp::acceptor acceptor{*io};
  asio::steady_timer accept_retry{*io};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  uint16_t port = 0;
  bool stopping = false;  // the server's thread only
  std::jthread thread;
};

Server::State::State(ServerOptions options) {
  raise_descriptor_limit();
  service.options = std::move(options);
  service.post = [weak = std::weak_ptr<asio::io_context>(io)](std::function<void()> work) {
    const auto alive = weak.lock();
    if (!alive) return;
    asio::post(*alive, [work = std::move(work)] {
      try {
        work();
      } catch (const std::exception& e) {
        log::error("http", std::string("a disconnect function threw: ") + e.what());
      }
    });
  };
  open_listener(acceptor, service.options);
  port = acceptor.local_endpoint().port();
}

asio::awaitable<void> Server::State::accept_all() {
  bool reported = false;
  while (!stopping) {
    error_code failure;
    co_await acceptor.async_wait(Tcp::acceptor::wait_read, asio::redirect_error(asio::use_awaitable, failure));
    if (stopping) break;
    const int error_number = accept_ready();
    if (error_number == 0) {
      reported = false;
      continue;
    }
    // Out of descriptors or memory: the connections wait in the backlog until some are free.
    if (!reported) log::warning("http", "accept a connection: " + errno_text(error_number));
    reported = true;
    accept_retry.expires_after(kAcceptRetry);
    co_await accept_retry.async_wait(asio::redirect_error(asio::use_awaitable, failure));
  }
}

// Takes every connection that is ready; gives the errno that a pause may cure, or 0.
int Server::State::accept_ready() {
  for (;;) {
    const int fd = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const bool curable = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return curable ? errno : 0;
    }
    const auto connection =
        std::make_shared<Connection>(*io, Tcp::socket(*io, acceptor.local_endpoint().protocol(), fd), service);
    connections.insert(connection);
    asio::co_spawn(*io, serve(connection), [](std::exception_ptr failure) {
      try {
        if (failure) std::rethrow_exception(failure);
      } catch (const std::exception& e) {
        log::error("http", std::string("serve a connection: ") + e.what());
      }
    });
  }
}

asio::awaitable<void> Server::State::serve(std::shared_ptr<Connection> connection) {
  std::exception_ptr failure;
  try {
    co_await connection->serve();
  } catch (...) {
    failure = std::current_exception();
  }
  connections.erase(connection);
  if (failure) std::rethrow_exception(failure);
}

void Server::State::run() {
  while (!io->stopped()) {
    try {
      io->run();
    } catch (const std::exception& e) {
      log::error("http", std::string("server thread: ") + e.what());
    }
  }
}

void Server::State::close_all() {
  stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  accept_retry.cancel();
  for (const auto& connection : connections) connection->close();
}

Server::Server(ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Server::~Server() {
  stop();
}

void Server::route(const std::string& method, const std::string& path, Handler handler) {
  VIME_CHECK(!state_->thread.joinable(), "route " + method + " " + path + " added after the server's start");
  state_->service.router.add(method, path, std::move(handler));
}

void Server::start() {
  VIME_CHECK(state_->acceptor.is_open() && !state_->thread.joinable(), "a server starts once");
  asio::co_spawn(*state_->io, state_->accept_all(), [](std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);
  });
  state_->thread = std::jthread([state = state_.get()] { state->run(); });
}

uint16_t Server::port() const {
  return state_->port;
}

void Server::stop() {
  if (state_->thread.joinable()) {
    VIME_CHECK(std::this_thread::get_id() != state_->thread.get_id(), "a handler must not stop its own server");
    asio::post(*state_->io, [state = state_.get()] { state->close_all(); });
    // The thread ends when every coroutine has seen its socket closed.
    state_->thread.join();
  }
  error_code ignored;
  state_->acceptor.close(ignored);
}

}  // namespace vime::http
