// Requests whose answer comes later: from other threads, never, after the client left, after the server stopped.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include "raw_socket.hpp"
#include "test_server.hpp"

using namespace vime::http;
using namespace std::chrono_literals;
using testing::get_within;
using testing::TestServer;

namespace {

const std::string kHeld = "POST /held HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";

std::future<void> on_disconnect(const Responder& responder) {
  const auto gone = std::make_shared<std::promise<void>>();
  responder.on_disconnect([gone] { gone->set_value(); });
  return gone->get_future();
}

}  // namespace

TEST_CASE("the first answer counts and later ones are ignored") {
  TestServer server;
  server.server.route("GET", "/twice", [](const ServerRequest&, Responder responder) {
    const Responder copy = responder;
    responder.respond({200, "first"});
    copy.respond({500, "second"});
    throw std::runtime_error("third");
  });
  server.start();
  Client client;
  const Reply reply = client.call(server.request("GET", "/twice"));
  CHECK(reply.body == "first");
}

TEST_CASE("a request that every responder forgot is answered 500") {
  TestServer server;
  server.server.route("GET", "/forget", [](const ServerRequest&, Responder) {});
  server.start();
  Client client;
  CHECK(get_within(client.send(server.request("GET", "/forget"))).reply.status == 500);

  auto outcome = client.send(server.request("POST", "/held"));
  std::optional<Responder> copy;
  {
    const auto items = server.held.take(1);
    copy = items[0].responder;
  }
  CHECK(outcome.wait_for(30ms) == std::future_status::timeout);
  copy.reset();
  const Outcome forgotten = get_within(std::move(outcome));
  CHECK(forgotten.reply.status == 500);
  CHECK(status_text(forgotten.reply) == "HTTP 500: the handler dropped the request without an answer");
}

TEST_CASE("a client that closes its connection while it waits is noticed") {
  TestServer server;
  server.start();
  auto connection = raw::Connection::to(server.server.port());
  connection.send(kHeld);
  const auto items = server.held.take(1);
  auto gone = on_disconnect(items[0].responder);
  CHECK(gone.wait_for(30ms) == std::future_status::timeout);
  connection.close();
  get_within(std::move(gone));
  items[0].responder.respond({200, "too late"});
  // Whoever asks afterwards is told at once.
  get_within(on_disconnect(items[0].responder));
}

TEST_CASE("a client that has sent its next request already is noticed too") {
  TestServer server;
  server.start();
  auto connection = raw::Connection::to(server.server.port());
  connection.send(kHeld + "POST /echo HTTP/1.1\r\nContent-Length: 1000\r\n\r\nstart");
  const auto items = server.held.take(1);
  auto gone = on_disconnect(items[0].responder);
  connection.send("more");
  CHECK(gone.wait_for(30ms) == std::future_status::timeout);
  connection.close();
  get_within(std::move(gone));
}

TEST_CASE("bytes that come while a request waits become the next request") {
  TestServer server;
  server.start();
  auto connection = raw::Connection::to(server.server.port());
  connection.send(kHeld);
  const auto items = server.held.take(1);
  const std::string body(300'000, 'b');
  std::jthread sending(
      [&] { connection.send("POST /echo HTTP/1.1\r\nContent-Length: 300000\r\nConnection: close\r\n\r\n" + body); });
  on_disconnect(items[0].responder).wait_for(30ms);
  items[0].responder.respond({200, "held"});
  sending.join();
  const std::string replies = connection.receive_all();
  CHECK(replies.find("\r\n\r\nheldHTTP/1.1 200 OK\r\n") != std::string::npos);
  CHECK(replies.substr(replies.size() - body.size()) == body);
}

TEST_CASE("a client whose deadline passed counts as gone") {
  TestServer server;
  server.start();
  Client client;
  Request request = server.request("POST", "/held");
  request.timeout = 100ms;
  auto outcome = client.send(request);
  const auto items = server.held.take(1);
  auto gone = on_disconnect(items[0].responder);
  CHECK(get_within(std::move(outcome)).timed_out);
  get_within(std::move(gone));
}

TEST_CASE("an answered request never reports a disconnect") {
  TestServer server;
  server.start();
  std::atomic<int> disconnects{0};
  auto connection = raw::Connection::to(server.server.port());
  connection.send(kHeld);
  {
    const auto items = server.held.take(1);
    items[0].responder.on_disconnect([&] { ++disconnects; });
    items[0].responder.respond({200, "done"});
    connection.receive_until("done");
    connection.close();
    items[0].responder.on_disconnect([&] { ++disconnects; });
  }
  server.server.stop();
  CHECK(disconnects.load() == 0);
}

TEST_CASE("stopping with requests in flight ends them all, and their responders do no harm afterwards") {
  constexpr std::size_t kCount = 200;
  std::vector<testing::Held::Item> items;
  Client client;
  std::vector<std::future<Outcome>> outcomes;
  std::atomic<int> disconnects{0};
  {
    TestServer server;
    server.start();
    for (std::size_t i = 0; i < kCount; ++i) outcomes.push_back(client.send(server.request("POST", "/held")));
    items = server.held.take(kCount);
    for (const auto& item : items) item.responder.on_disconnect([&] { ++disconnects; });
    server.server.stop();
    server.server.stop();
    items[0].responder.respond({200, "after the stop"});
  }
  for (const auto& item : items) item.responder.respond({200, "after the destructor"});
  items[1].responder.on_disconnect([&] { ++disconnects; });
  items.clear();
  for (auto& outcome : outcomes) CHECK_FALSE(get_within(std::move(outcome)).answered);
  CHECK(disconnects.load() == 0);
}

TEST_CASE("answers that race with the stop are delivered or dropped, never more") {
  for (int round = 0; round < 20; ++round) {
    Client client;
    std::vector<std::future<Outcome>> outcomes;
    std::jthread answering;
    {
      TestServer server;
      server.start();
      for (int i = 0; i < 20; ++i) outcomes.push_back(client.send(server.request("POST", "/held")));
      answering = std::jthread([items = server.held.take(20)] {
        for (const auto& item : items) item.responder.respond({200, "ok"});
      });
      get_within(std::move(outcomes[0]));
    }
    for (std::size_t i = 1; i < outcomes.size(); ++i) {
      const Outcome outcome = get_within(std::move(outcomes[i]));
      CHECK((outcome.answered ? outcome.reply.body == "ok" : !outcome.error.empty()));
    }
  }
}
