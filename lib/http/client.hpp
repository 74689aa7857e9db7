// HTTP client: one thread drives a libcurl multi handle; thousands of requests may be in flight, each on a connection
// of its own. Any thread may send; only call() blocks, at most for the request's timeout. Every request has a deadline
// that counts from send(). Connections are kept and reused. A kept connection that turns out to be closed before any
// byte of the reply came makes the request go out once more on a fresh one, so a server that dies in mid-request is
// seen as one that refuses the connection. Proxy settings of the environment are ignored.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vime::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method = "GET";
  std::string url;   // http://host:port/path?query
  std::string body;  // sent with Content-Type: application/json unless a header says otherwise
  Headers headers;
  std::string what;  // "push to engine 0": opens every error text
  std::chrono::milliseconds timeout{30000};
};

struct Reply {
  int status = 0;
  std::string body;
  Headers headers;  // names in lower case
};

// What became of a request: a reply of any status, or the reason why there is none.
struct Outcome {
  bool answered = false;
  bool timed_out = false;
  bool cancelled = false;  // the client was destroyed first; sending again is useless
  Reply reply;
  // "" for a status of 2xx. "<what>: no answer from http://127.0.0.1:80/x within 30.0 s", "<what>: connection refused
  // by
  // ...", "<what>: HTTP 500: <error.message of the body, or the body's start>"
  std::string error;
};

class Client {
 public:
  Client();
  // Requests still in flight end with an error outcome, delivered before the destructor returns. Not to be run from a
  // `done`.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // `done` runs on the client's thread, exactly once, and must not block or throw.
  void send(Request request, std::function<void(Outcome)> done);
  std::future<Outcome> send(Request request);

  // Sends and waits; not to be called from a `done`. Throws Error{process_failed} when there was no answer, and when
  // the status is not 2xx.
  Reply call(Request request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Error text of a reply whose status is not 2xx: "HTTP 400: <message>". Understands {"error": {"message": ..}},
// {"error": ".."},
// {"message": ".."} and {"detail": ..} (FastAPI); of any other body it gives the start.
std::string status_text(const Reply& reply);

// Percent-encodes all but letters, digits and "-._~".
std::string url_encode(const std::string& text);

}  // namespace vime::http
