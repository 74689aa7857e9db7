#include "http/connection.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http.hpp>

#include <array>
#include <cctype>
#include <chrono>
#include <optional>
#include <string_view>

#include "http/target.hpp"

namespace vime::http {
namespace {

namespace beast_http = boost::beast::http;
using Parser = beast_http::request_parser<beast_http::string_body>;

constexpr std::size_t kMaxHeadBytes = 64 << 10;
constexpr std::size_t kMaxReadAheadBytes = 64 << 10;
constexpr std::chrono::seconds kLinger{2};

// Beast's own string view is another type in each Boost release.
template <typename Text>
std::string_view view(const Text& text) {
  return {text.data(), text.size()};
}

// Takes time that does not depend on where the texts differ.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

ServerRequest to_request(Parser::value_type&& message, Target target) {
  ServerRequest request;
  request.method = std::string(view(message.method_string()));
  request.path = std::move(target.path);
  request.query = std::move(target.query);
  for (const auto& field : message) {
    std::string name(view(field.name_string()));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    std::string& value = request.headers[name];
    if (!value.empty()) value += ", ";
    value += view(field.value());
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace

void Connection::close() {
  closed_ = true;
  error_code ignored;
  socket_.close(ignored);
  timer_.cancel();
}

asio::awaitable<void> Connection::serve() {
  error_code ignored;
  socket_.set_option(Tcp::no_delay(true), ignored);
  // Ends connections whose client machine is gone; a quiet but living client is left alone.
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  socket_.non_blocking(true, ignored);
  bool more = true;
  while (more && !closed_) more = co_await serve_one();
  if (!closed_) {
    socket_.shutdown(Tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }
}

// Reads and answers one request; false when the connection cannot be used for another.
asio::awaitable<bool> Connection::serve_one() {
  Parser parser;
  parser.body_limit(service_.options.max_body_bytes);
  parser.header_limit(kMaxHeadBytes);
  error_code failure;
  co_await beast_http::async_read_header(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, failure));
  if (failure) co_return co_await reply_to_refused_read(failure);
  // Checked before the body is read, so that a stranger cannot make the server hold large bodies.
  const std::string& token = service_.options.token;
  if (!token.empty() && !same_secret(view(parser.get()["x-vime-token"]), token)) {
    co_return co_await refuse(403, "the header x-vime-token is missing or is not this server's token");
  }
  if (!parser.is_done()) {
    if (boost::beast::iequals(parser.get()[beast_http::field::expect], "100-continue")) {
      beast_http::response<beast_http::empty_body> go_on{beast_http::status::continue_, 11};
      co_await beast_http::async_write(socket_, go_on, asio::redirect_error(asio::use_awaitable, failure));
      if (failure) co_return false;
    }
    co_await beast_http::async_read(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, failure));
    if (failure) co_return co_await reply_to_refused_read(failure);
  }
  const bool keep_alive = parser.get().keep_alive();
  const unsigned version = parser.get().version();
  auto target = parse_target(view(parser.get().target()));
  if (!target) co_return co_await refuse(400, "malformed target " + std::string(view(parser.get().target())));

  ServerRequest request = to_request(parser.release(), std::move(*target));
  const auto exchange = std::make_shared<Exchange>(service_.post);
  service_.router.dispatch(request, Responder(std::make_shared<Responder::State>(exchange)));
  std::string().swap(request.body);  // thousands of requests may wait here
  co_await wait_for_answer(exchange);
  auto response = exchange->take_answer();
  if (!response || closed_) co_return false;
  const std::string allow = response->status == 405 ? service_.router.allowed_methods(request.path) : "";
  co_return co_await write(std::move(*response), version, keep_alive, request.method == "HEAD", allow);
}

asio::awaitable<void> Connection::wait_for_answer(std::shared_ptr<Exchange> exchange) {
  if (!exchange->is_settled()) {
    exchange->set_wake([self = shared_from_this()] { self->timer_.cancel(); });
    watched_ = exchange.get();
    watch_client(exchange);
    while (!exchange->is_settled() && !closed_) {
      timer_.expires_at(asio::steady_timer::time_point::max());
      error_code cancelled;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
    exchange->set_wake(nullptr);
    // Tells a watch that was already queued as ready to keep its hands off the buffer.
    watched_ = nullptr;
    error_code ignored;
    if (!closed_) socket_.cancel(ignored);
  }
  if (closed_) exchange->abandon();
}

// Notices that the client went away while its request waits. Bytes that arrive meanwhile belong to its next request.
void Connection::watch_client(std::shared_ptr<Exchange> exchange) {
  socket_.async_wait(Tcp::socket::wait_read, [self = shared_from_this(), exchange](error_code failure) {
    if (failure || self->watched_ != exchange.get()) return;
    if (!self->read_ahead()) {
      exchange->client_gone();
      self->timer_.cancel();
    } else if (self->buffer_.size() < kMaxReadAheadBytes) {
      self->watch_client(exchange);
    }
  });
}

// Moves bytes that have arrived into the buffer; false when the client closed the connection.
bool Connection::read_ahead() {
  constexpr std::size_t kStep = 4096;
  error_code failure;
  const std::size_t count = socket_.read_some(buffer_.prepare(kStep), failure);
  buffer_.commit(count);
  return !failure || failure == asio::error::would_block || failure == asio::error::try_again;
}

asio::awaitable<bool> Connection::reply_to_refused_read(error_code reason) {
  if (reason == beast_http::error::body_limit) {
    co_return co_await refuse(413, "the body is longer than the " + std::to_string(service_.options.max_body_bytes) +
                                       " bytes that are allowed");
  }
  if (reason == beast_http::error::header_limit || reason == beast_http::error::buffer_overflow) {
    co_return co_await refuse(
        431, "the head of the request is longer than the " + std::to_string(kMaxHeadBytes) + " bytes that are allowed");
  }
  const bool malformed = reason.category() == make_error_code(beast_http::error::bad_method).category() &&
                         reason != beast_http::error::end_of_stream && reason != beast_http::error::partial_message;
  if (!malformed) co_return false;  // the client closed the connection, or it broke
  co_return co_await refuse(400, "malformed request: " + reason.message());
}

// Answers a request that was not read to its end; the connection cannot serve another.
asio::awaitable<bool> Connection::refuse(int status, std::string message) {
  co_await write(error_response(status, message), 11, false, false, "");
  if (!closed_) co_await drain();
  co_return false;
}

asio::awaitable<bool> Connection::write(Response response, unsigned version, bool keep_alive, bool head,
                                        std::string allow) {
  if (response.status < 200 || response.status > 599) {
    response = error_response(500, "the handler answered the impossible status " + std::to_string(response.status));
  }
  beast_http::response<beast_http::string_body> message;
  message.version(version);
  message.result(static_cast<unsigned>(response.status));
  message.keep_alive(keep_alive);
  if (!allow.empty()) message.set(beast_http::field::allow, allow);
  const bool has_body = response.status != 204 && response.status != 304;
  if (has_body) {
    if (!response.body.empty()) message.set(beast_http::field::content_type, response.content_type);
    message.content_length(response.body.size());
    if (!head) message.body() = std::move(response.body);
  }
  error_code failure;
  co_await beast_http::async_write(socket_, message, asio::redirect_error(asio::use_awaitable, failure));
  co_return !failure && keep_alive;
}

// Reads what the client still sends. Closing with unread bytes would reset the connection, and the client might lose
// the answer that explains why.
asio::awaitable<void> Connection::drain() {
  error_code failure;
  socket_.shutdown(Tcp::socket::shutdown_send, failure);
  timer_.expires_after(kLinger);
  timer_.async_wait([self = shared_from_this()](error_code cancelled) {
    error_code ignored;
    if (!cancelled) self->socket_.close(ignored);
  });
  std::array<char, 16384> unread;
  while (!failure) {
    co_await socket_.async_read_some(asio::buffer(unread), asio::redirect_error(asio::use_awaitable, failure));
  }
  timer_.cancel();
}

}  // namespace vime::http
