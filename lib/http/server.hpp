// HTTP/1.1 server: Boost.Beast coroutines on one thread of its own, keep-alive, any number of requests waiting for
// their answer. Handlers run on the server's thread and must not block: long work goes elsewhere and answers later
// through the Responder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vime::http {

struct ServerRequest {
  std::string method;
  std::string path;                                         // decoded, without the query
  std::multimap<std::string, std::string> query;            // decoded
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case
  std::string body;

  // First value of a query key, or `otherwise`.
  std::string query_value(const std::string& key, const std::string& otherwise = "") const;
  std::string header(std::string_view name) const;  // "" when absent
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
};

// The right and duty to answer one request. Copyable; any thread may use it. The first respond() counts, later ones are
// ignored. When the last copy goes without an answer, the client gets 500.
class Responder {
 public:
  struct State;
  explicit Responder(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void respond(Response response) const;
  // `gone` runs on the server's thread at most once, when the client closes the connection (or its sending half) before
  // the answer; it must not block. Not when the server stops. A later call replaces the function of an earlier one.
  void on_disconnect(std::function<void()> gone) const;

 private:
  std::shared_ptr<State> state_;
};

// The request lives until the handler returns.
using Handler = std::function<void(const ServerRequest&, Responder)>;

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;                        // 0: the kernel chooses
  std::size_t max_body_bytes = 256u << 20;  // larger bodies are answered 413, request heads above 64 KiB 431
  // When set, every request must carry "x-vime-token: <token>"; others are answered 403.
  std::string token;
};

class Server {
 public:
  // Listens at once, so that the port is taken and connections queue until start(). Throws Error{exhausted}
  // "listen on 127.0.0.1:8000: Address already in use", Error{refused} for an address that this machine cannot listen
  // on.
  explicit Server(ServerOptions options);
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // All routes are added before start(). An unknown path is answered 404, a known path with another method 405,
  // a handler that throws vime::Error 500 (400 for ErrorKind::refused), all with {"error": {"message", "type", "param",
  // "code"}}.
  void route(const std::string& method, const std::string& path, Handler handler);
  void start();
  uint16_t port() const;
  // Stops accepting, closes every connection (waiting requests get no answer) and joins the thread. Idempotent.
  // Responders may outlive it; what they do then has no effect. Not to be called from a handler.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// {"error": {"message": ..., "type": ..., "param": null, "code": status}}, the body form of vLLM's server.
Response error_response(int status, const std::string& message);

}  // namespace vime::http
