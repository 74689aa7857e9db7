#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "http/client.hpp"
#include "raw_socket.hpp"
#include "test_server.hpp"

using namespace vime::http;
using namespace std::chrono_literals;
using testing::get_within;
using testing::TestServer;

namespace {

Request request_to(const std::string& url, std::chrono::milliseconds timeout = testing::kPatience) {
  Request request;
  request.url = url;
  request.what = "push to engine 0";
  request.timeout = timeout;
  return request;
}

// What a client makes of a server that reads the request, sends `reply` and closes.
Outcome outcome_of_reply(const std::string& reply) {
  raw::Listener listener;
  std::jthread server([&] {
    auto connection = listener.accept();
    connection.receive_until("\r\n\r\n");
    connection.send(reply);
  });
  Client client;
  return get_within(client.send(request_to(listener.url("/x?secret=1"))));
}

}  // namespace

TEST_CASE("a server that never answers is given up at the deadline, and the error says whom and how long") {
  TestServer server;
  server.start();
  Client client;
  Request request = server.request("POST", "/held");
  request.what = "push to engine 0";
  request.timeout = 200ms;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = get_within(client.send(request));
  const auto waited = std::chrono::steady_clock::now() - start;
  CHECK_FALSE(outcome.answered);
  CHECK(outcome.timed_out);
  CHECK(outcome.error == "push to engine 0: no answer from " + request.url + " within 200 ms");
  CHECK(waited >= 190ms);
  CHECK(waited < 5s);
}

TEST_CASE("a server that takes the connection and says nothing is given up at the deadline") {
  raw::Listener listener;
  Client client;
  const Outcome outcome = get_within(client.send(request_to(listener.url("/x"), 150ms)));
  CHECK(outcome.timed_out);
  CHECK(outcome.error == "push to engine 0: no answer from " + listener.url("/x") + " within 150 ms");
}

TEST_CASE("an answer that stalls half-way is given up at the deadline") {
  raw::Listener listener;
  std::jthread server([&] {
    auto connection = listener.accept();
    connection.receive_until("\r\n\r\n");
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    connection.receive_all();
  });
  Client client;
  const Outcome outcome = get_within(client.send(request_to(listener.url("/x"), 150ms)));
  CHECK(outcome.timed_out);
  CHECK(outcome.error == "push to engine 0: no complete answer from " + listener.url("/x") + " within 150 ms");
  CHECK(outcome.reply.body.empty());
}

TEST_CASE("a timeout of zero or less is a deadline at once, not none") {
  raw::Listener listener;
  Client client;
  CHECK(get_within(client.send(request_to(listener.url("/x"), 0ms))).timed_out);
  CHECK(get_within(client.send(request_to(listener.url("/x"), -5ms))).timed_out);
}

TEST_CASE("a port that nobody listens on refuses the connection") {
  raw::Listener refusing(false);
  Client client;
  const Outcome outcome = get_within(client.send(request_to(refusing.url("/x"))));
  CHECK_FALSE(outcome.answered);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.error == "push to engine 0: connection refused by " + refusing.url("/x"));
}

TEST_CASE("a server that closes without an answer, half-way or with nonsense is told apart") {
  CHECK(outcome_of_reply("").error.find("/x closed the connection without an answer") != std::string::npos);
  const Outcome half = outcome_of_reply("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
  CHECK_FALSE(half.answered);
  CHECK(half.error.find("/x closed the connection before its answer was complete") != std::string::npos);
  CHECK(outcome_of_reply("SSH-2.0-OpenSSH_9.2\r\n").error.find("/x answered something that is not HTTP") !=
        std::string::npos);
}

TEST_CASE("the query, which may hold secrets or thousands of bytes, stays out of error texts") {
  CHECK(outcome_of_reply("").error.find("secret") == std::string::npos);
}

TEST_CASE("a URL that is not http is refused with its form") {
  Client client;
  CHECK(get_within(client.send(request_to("https://127.0.0.1:1/x"))).error.find("expected http://host:port/path") !=
        std::string::npos);
  CHECK(get_within(client.send(request_to("file:///etc/hostname"))).error.find("expected http://host:port/path") !=
        std::string::npos);
  CHECK_FALSE(get_within(client.send(request_to("http://:x/"))).answered);
}

TEST_CASE("call throws process_failed for no answer and for a status that is not 2xx") {
  TestServer server;
  server.server.route("GET", "/broken", [](const ServerRequest&, Responder responder) {
    responder.respond(error_response(503, "engine is dead"));
  });
  server.start();
  Client client;
  Request request = server.request("GET", "/broken");
  request.what = "weights of engine 3";
  try {
    client.call(request);
    FAIL("no exception");
  } catch (const vime::Error& e) {
    CHECK(e.kind() == vime::ErrorKind::process_failed);
    CHECK(e.message() == "weights of engine 3: HTTP 503: engine is dead");
  }
  raw::Listener refusing(false);
  try {
    client.call(request_to(refusing.url("/")));
    FAIL("no exception");
  } catch (const vime::Error& e) {
    CHECK(e.kind() == vime::ErrorKind::process_failed);
    CHECK(e.message() == "push to engine 0: connection refused by " + refusing.url("/"));
  }
}

TEST_CASE("destroying the client ends every request once, before the destructor returns") {
  constexpr int kCount = 100;
  TestServer server;
  server.start();
  std::atomic<int> cancelled{0};
  std::atomic<int> calls{0};
  auto client = std::make_unique<Client>();
  for (int i = 0; i < kCount; ++i) {
    client->send(server.request("POST", "/held"), [&](Outcome outcome) {
      ++calls;
      if (outcome.cancelled && !outcome.answered && !outcome.error.empty()) ++cancelled;
    });
  }
  const auto items = server.held.take(kCount / 2);  // some are in flight, others perhaps queued still
  client.reset();
  CHECK(calls.load() == kCount);
  CHECK(cancelled.load() == kCount);
}

TEST_CASE("requests sent just before the client's end, queued or on their way, end once each") {
  raw::Listener listener;  // never answers
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> cancelled{0};
    auto client = std::make_unique<Client>();
    for (int i = 0; i < 5; ++i) {
      client->send(request_to(listener.url("/x")), [&](Outcome outcome) { cancelled += outcome.cancelled ? 1 : 0; });
    }
    client.reset();
    REQUIRE(cancelled.load() == 5);
  }
}

TEST_CASE("a request sent from a callback while the client is destroyed is cancelled too") {
  TestServer server;
  server.start();
  std::atomic<int> calls{0};
  std::vector<testing::Held::Item> items;
  {
    Client client;
    client.send(server.request("POST", "/held"), [&](Outcome first) {
      ++calls;
      if (!first.cancelled) return;
      client.send(server.request("POST", "/held"), [&](Outcome second) {
        if (second.cancelled) ++calls;
      });
    });
    items = server.held.take(1);
  }
  CHECK(calls.load() == 2);
}

TEST_CASE("a callback that throws does not stop the client") {
  TestServer server;
  server.start();
  Client client;
  client.send(server.request("POST", "/echo", "a"), [](Outcome) { throw std::runtime_error("planted"); });
  CHECK(client.call(server.request("POST", "/echo", "b")).body == "b");
}
