#include "http/client.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "raw_socket.hpp"
#include "test_server.hpp"

using namespace vime::http;
using testing::get_within;
using testing::TestServer;

namespace {

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

std::string header(const Reply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers) {
    if (key == name) return value;
  }
  return "";
}

}  // namespace

TEST_CASE("a request and its reply carry status, body and headers") {
  TestServer server;
  server.server.route("POST", "/mirror", [](const ServerRequest& request, Responder responder) {
    responder.respond(
        {201,
         request.method + " " + request.header("x-note") + " " + request.header("content-type") + " " + request.body,
         "text/plain"});
  });
  server.start();
  Client client;
  Request request = server.request("POST", "/mirror", "hello");
  request.headers = {{"X-Note", "seven"}};
  const Reply reply = client.call(request);
  CHECK(reply.status == 201);
  CHECK(reply.body == "POST seven application/json hello");
  CHECK(header(reply, "content-type") == "text/plain");
  CHECK(header(reply, "content-length") == std::to_string(reply.body.size()));
}

TEST_CASE("a body's own content type is kept, and an empty body has none") {
  TestServer server;
  server.server.route("POST", "/type", [](const ServerRequest& request, Responder responder) {
    responder.respond({200, "<" + request.header("content-type") + ">"});
  });
  server.start();
  Client client;
  Request request = server.request("POST", "/type", "x");
  request.headers = {{"content-type", "text/csv"}};
  CHECK(client.call(request).body == "<text/csv>");
  CHECK(client.call(server.request("POST", "/type")).body == "<>");
}

TEST_CASE("every method reaches its own handler") {
  TestServer server;
  for (const char* method : {"GET", "PUT", "DELETE", "PATCH", "HEAD"}) {
    server.server.route(method, "/thing", [](const ServerRequest& request, Responder responder) {
      responder.respond({200, request.method + ":" + request.body});
    });
  }
  server.start();
  Client client;
  CHECK(client.call(server.request("GET", "/thing")).body == "GET:");
  CHECK(client.call(server.request("GET", "/thing", "why not")).body == "GET:why not");
  CHECK(client.call(server.request("PUT", "/thing", "p")).body == "PUT:p");
  CHECK(client.call(server.request("DELETE", "/thing")).body == "DELETE:");
  CHECK(client.call(server.request("PATCH", "/thing", "q")).body == "PATCH:q");
  const Reply head = client.call(server.request("HEAD", "/thing"));
  CHECK(head.body.empty());
  CHECK(header(head, "content-length") == "5");
}

TEST_CASE("bodies of 20 MB come through unchanged in both directions") {
  TestServer server;
  server.start();
  Client client;
  std::string body(20'000'000, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 2654435761u >> 13);
  const Reply reply = client.call(server.request("POST", "/echo", body));
  CHECK(reply.body.size() == body.size());
  CHECK((reply.body == body));
}

TEST_CASE("a second request reuses the connection of the first") {
  raw::Listener listener;
  std::jthread server([&] {
    auto connection = listener.accept();
    connection.receive_until("/first");
    connection.receive_until("\r\n\r\n");
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none");
    connection.receive_until("/second");
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo");
    connection.receive_all();
  });
  Client client;
  Request request;
  request.what = "test";
  request.timeout = testing::kPatience;
  request.url = listener.url("/first");
  CHECK(client.call(request).body == "one");
  request.url = listener.url("/second");
  CHECK(client.call(request).body == "two");
}

TEST_CASE("a kept connection that the server closed is replaced without an error") {
  raw::Listener listener;
  std::jthread server([&] {
    for (int i = 0; i < 2; ++i) {
      auto connection = listener.accept();
      connection.receive_until("\r\n\r\n");
      connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
  });
  Client client;
  Request request;
  request.url = listener.url("/");
  request.timeout = testing::kPatience;
  CHECK(client.call(request).body == "ok");
  CHECK(client.call(request).body == "ok");
}

TEST_CASE("1000 requests wait at once and are answered in reverse order from another thread") {
  constexpr std::size_t kCount = 1000;
  TestServer server;
  server.start();
  Client client;
  std::vector<std::future<Outcome>> outcomes;
  for (std::size_t i = 0; i < kCount; ++i) {
    outcomes.push_back(client.send(server.request("POST", "/held", std::to_string(i))));
  }
  auto items = server.held.take(kCount);
  REQUIRE(items.size() == kCount);
  std::sort(items.begin(), items.end(), [](auto& a, auto& b) { return std::stoul(a.body) > std::stoul(b.body); });
  std::jthread answering([&] {
    for (auto& item : items) item.responder.respond({200, "answer to " + item.body});
  });
  for (std::size_t i = 0; i < kCount; ++i) {
    const Outcome outcome = get_within(std::move(outcomes[i]));
    REQUIRE(outcome.answered);
    REQUIRE(outcome.reply.body == "answer to " + std::to_string(i));
  }
}

TEST_CASE("threads may share a client") {
  TestServer server;
  server.start();
  Client client;
  std::atomic<int> right{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 40; ++i) {
          const std::string body = std::to_string(t) + "/" + std::to_string(i);
          if (client.call(server.request("POST", "/echo", body)).body == body) ++right;
        }
      });
    }
  }
  CHECK(right.load() == 8 * 40);
}

TEST_CASE("a callback may send the next request") {
  TestServer server;
  server.start();
  Client client;
  std::promise<std::string> last;
  client.send(server.request("POST", "/echo", "first"), [&](Outcome first) {
    client.send(server.request("POST", "/echo", first.reply.body + " second"),
                [&](Outcome second) { last.set_value(second.reply.body); });
  });
  CHECK(get_within(last.get_future()) == "first second");
}

TEST_CASE("1000 requests leave no descriptor behind") {
  const auto round = [] {
    TestServer server;
    server.start();
    Client client;
    std::vector<std::future<Outcome>> outcomes;
    for (int i = 0; i < 1000; ++i) outcomes.push_back(client.send(server.request("POST", "/echo", "x")));
    for (auto& outcome : outcomes) REQUIRE(get_within(std::move(outcome)).answered);
  };
  round();  // what libraries open once and keep
  const auto before = open_descriptors();
  round();
  CHECK(open_descriptors() == before);
}

TEST_CASE("proxy settings of the environment are ignored") {
  TestServer server;
  server.start();
  raw::Listener refusing(false);
  ::setenv("http_proxy", refusing.url("").c_str(), 1);
  ::setenv("all_proxy", refusing.url("").c_str(), 1);
  Client client;
  const Outcome outcome = get_within(client.send(server.request("POST", "/echo", "direct")));
  ::unsetenv("http_proxy");
  ::unsetenv("all_proxy");
  CHECK(outcome.reply.body == "direct");
}

TEST_CASE("status_text finds the message in every known form of error body") {
  CHECK(status_text({400, R"({"error": {"message": "bad tag", "code": 400}})", {}}) == "HTTP 400: bad tag");
  CHECK(status_text({404, R"({"error": "no such model"})", {}}) == "HTTP 404: no such model");
  CHECK(status_text({500, R"({"object": "error", "message": "old form"})", {}}) == "HTTP 500: old form");
  CHECK(status_text({422, R"({"detail": [{"loc": ["body"]}]})", {}}) == R"(HTTP 422: [{"loc":["body"]}])");
  CHECK(status_text({502, "<html>Bad Gateway</html>\n", {}}) == "HTTP 502: <html>Bad Gateway</html>");
  CHECK(status_text({503, "", {}}) == "HTTP 503");
  CHECK(status_text({500, std::string(1000, 'x'), {}}) == "HTTP 500: " + std::string(300, 'x') + "...");
}

TEST_CASE("status_text of an error_response gives the message back") {
  const Response response = error_response(409, "already \"started\"");
  CHECK(status_text({response.status, response.body, {}}) == "HTTP 409: already \"started\"");
}

TEST_CASE("url_encode keeps plain characters and encodes the others") {
  CHECK(url_encode("AZaz09-._~") == "AZaz09-._~");
  CHECK(url_encode("a b/c&d=e%") == "a%20b%2Fc%26d%3De%25");
  CHECK(url_encode("\xc3\xa9") == "%C3%A9");
}
