// One connection of the server: a coroutine that reads requests and writes their answers, one after the other.
// Private to the room, because it shows Boost types. Everything here runs on the server's thread.
#pragma once

// Boost 1.74's awaitable.hpp uses std::exchange without including it.
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <memory>
#include <string>

#include "http/exchange.hpp"
#include "http/router.hpp"

namespace vime::http {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

// What all connections of a server share. Lives until the last coroutine has ended.
struct Service {
  ServerOptions options;
  Router router;
  Post post;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::io_context& io, Tcp::socket socket, const Service& service)
      : socket_(std::move(socket)), timer_(io), service_(service) {}

  // Serves requests until the client closes, an unreadable request comes or close() is called.
  asio::awaitable<void> serve();
  void close();

 private:
  asio::awaitable<bool> serve_one();
  asio::awaitable<void> wait_for_answer(std::shared_ptr<Exchange> exchange);
  asio::awaitable<bool> reply_to_refused_read(error_code reason);
  asio::awaitable<bool> refuse(int status, std::string message);
  asio::awaitable<bool> write(Response response, unsigned version, bool keep_alive, bool head, std::string allow);
  asio::awaitable<void> drain();
  void watch_client(std::shared_ptr<Exchange> exchange);
  bool read_ahead();

  Tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  asio::steady_timer timer_;
  const Service& service_;
  const Exchange* watched_ = nullptr;
  bool closed_ = false;
};

}  // namespace vime::http
