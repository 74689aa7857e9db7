#include "http/server.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "raw_socket.hpp"
#include "test_server.hpp"

using namespace vime::http;
using testing::get_within;
using testing::TestServer;

namespace {

// "type" and "message" of an error reply whose form is checked on the way.
std::pair<std::string, std::string> error_of(const Outcome& outcome) {
  const vime::Json error = vime::parse_json(outcome.reply.body, "error body").at("error");
  CHECK(error.at("param").is_null());
  CHECK(error.at("code") == outcome.reply.status);
  return {error.at("type"), error.at("message")};
}

std::promise<std::string>* logged = nullptr;

}  // namespace

TEST_CASE("an unknown path is answered 404 and a known one with another method 405") {
  TestServer server;
  server.server.route("GET", "/echo", [](const ServerRequest&, Responder responder) { responder.respond({}); });
  server.start();
  Client client;
  const Outcome unknown = get_within(client.send(server.request("POST", "/ecko")));
  CHECK(unknown.reply.status == 404);
  CHECK(error_of(unknown) == std::pair<std::string, std::string>("NotFoundError", "no route /ecko"));

  const Outcome other = get_within(client.send(server.request("DELETE", "/echo")));
  CHECK(other.reply.status == 405);
  CHECK(error_of(other).second == "/echo does not take DELETE, expected GET, POST");
  CHECK(std::count(other.reply.headers.begin(), other.reply.headers.end(),
                   std::pair<std::string, std::string>("allow", "GET, POST")) == 1);
  CHECK(get_within(client.send(server.request("BREW", "/echo"))).reply.status == 405);
}

TEST_CASE("a handler that throws is answered 400 for refused and 500 for everything else") {
  TestServer server;
  const auto throwing = [&](const std::string& path, auto exception) {
    server.server.route("GET", path, [exception](const ServerRequest&, Responder) { throw exception; });
  };
  throwing("/refused", vime::Error(vime::ErrorKind::refused, "n must be positive", "give n"));
  throwing("/failed", vime::Error(vime::ErrorKind::process_failed, "worker died"));
  throwing("/std", std::runtime_error("oops"));
  throwing("/other", 7);
  server.start();
  Client client;
  const Outcome refused = get_within(client.send(server.request("GET", "/refused")));
  CHECK(refused.reply.status == 400);
  CHECK(error_of(refused) == std::pair<std::string, std::string>("BadRequestError", "n must be positive (give n)"));
  const Outcome failed = get_within(client.send(server.request("GET", "/failed")));
  CHECK(failed.reply.status == 500);
  CHECK(error_of(failed) == std::pair<std::string, std::string>("InternalServerError", "worker died"));
  CHECK(get_within(client.send(server.request("GET", "/std"))).reply.status == 500);
  CHECK(get_within(client.send(server.request("GET", "/other"))).reply.status == 500);
}

TEST_CASE("with a token only requests that carry it are served") {
  ServerOptions options;
  options.token = "open sesame";
  TestServer server(options);
  server.start();
  Client client;
  Request request = server.request("POST", "/echo", "in");
  CHECK(get_within(client.send(request)).reply.status == 403);
  for (const char* wrong : {"", "open sesam", "open sesame!", "open sesamE"}) {
    request.headers = {{"x-vime-token", wrong}};
    CHECK(get_within(client.send(request)).reply.status == 403);
  }
  request.headers = {{"X-Vime-Token", "open sesame"}};
  CHECK(client.call(request).body == "in");
}

TEST_CASE("a body above the limit is answered 413, and the client gets to read that") {
  ServerOptions options;
  options.max_body_bytes = 1000;
  TestServer server(options);
  server.start();
  Client client;
  CHECK(client.call(server.request("POST", "/echo", std::string(1000, 'x'))).body.size() == 1000);
  const Outcome above = get_within(client.send(server.request("POST", "/echo", std::string(1001, 'x'))));
  CHECK(above.reply.status == 413);
  CHECK(error_of(above).second == "the body is longer than the 1000 bytes that are allowed");
  const Outcome far = get_within(client.send(server.request("POST", "/echo", std::string(30'000'000, 'x'))));
  CHECK(far.reply.status == 413);
}

TEST_CASE("paths and queries are decoded, and repeated keys keep their order") {
  TestServer server;
  ServerRequest seen;
  server.server.route("GET", "/a b+c", [&](const ServerRequest& request, Responder responder) {
    seen = request;
    responder.respond({});
  });
  server.start();
  Client client;
  client.call(server.request("GET", "/a%20b+c?tags=weights&tags=kv%5Fcache&empty=&flag&x+y=1%2B1+%26&&tags=z"));
  CHECK(seen.path == "/a b+c");
  std::vector<std::string> tags;
  for (auto [it, end] = seen.query.equal_range("tags"); it != end; ++it) tags.push_back(it->second);
  CHECK(tags == std::vector<std::string>{"weights", "kv_cache", "z"});
  CHECK(seen.query_value("tags") == "weights");
  CHECK(seen.query_value("empty", "otherwise").empty());
  CHECK(seen.query_value("flag", "otherwise").empty());
  CHECK(seen.query_value("x y") == "1+1 &");
  CHECK(seen.query_value("absent", "otherwise") == "otherwise");
  CHECK(seen.query.size() == 6);
}

TEST_CASE("a port that is taken is an error that names it") {
  raw::Listener taken;
  ServerOptions options;
  options.port = taken.port();
  try {
    Server server(options);
    FAIL("no exception");
  } catch (const vime::Error& e) {
    CHECK(e.kind() == vime::ErrorKind::exhausted);
    CHECK(e.message() == "listen on 127.0.0.1:" + std::to_string(taken.port()) + ": Address already in use");
  }
}

TEST_CASE("an address that is not this machine's is refused") {
  ServerOptions options;
  options.address = "192.0.2.1";
  CHECK_THROWS_WITH_AS(Server{options}, "listen on 192.0.2.1:0: Cannot assign requested address", vime::Error);
  options.address = "nonsense";
  CHECK_THROWS_AS(Server{options}, vime::Error);
}

TEST_CASE("a port is free again as soon as the server has stopped, with connections it closed still about") {
  ServerOptions options;
  {
    TestServer first;
    first.start();
    options.port = first.server.port();
    Client client;
    client.call(first.request("POST", "/echo", "x"));
    first.server.stop();
  }
  TestServer second(options);
  second.start();
  Client client;
  CHECK(client.call(second.request("POST", "/echo", "again")).body == "again");
}

TEST_CASE("connections made before the start are served after it") {
  TestServer server;
  Client client;
  auto early = client.send(server.request("POST", "/echo", "early"));
  CHECK(early.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  server.start();
  CHECK(get_within(std::move(early)).reply.body == "early");
}

TEST_CASE("a server that was never started stops too, and frees its port") {
  uint16_t port = 0;
  {
    Server server{ServerOptions{}};
    port = server.port();
    server.stop();
    server.stop();
    ServerOptions options;
    options.port = port;
    CHECK_NOTHROW(Server{options});
  }
}

TEST_CASE("a server without descriptors leaves connections waiting and serves them when some are free") {
  TestServer server;
  auto connection = raw::Connection::to(server.server.port());
  connection.send("POST /echo HTTP/1.1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwait");
  std::promise<std::string> first_line;
  auto line = first_line.get_future();
  logged = &first_line;
  vime::log::set_sink([](const std::string& text) {
    if (logged != nullptr) std::exchange(logged, nullptr)->set_value(text);
  });
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
  // Descriptor numbers below the limit may be free: the limit goes to the lowest free one.
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  const rlimit none_left{static_cast<rlim_t>(lowest_free), usual.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none_left) == 0);
  server.start();
  const bool reported = line.wait_for(testing::kPatience) == std::future_status::ready;
  ::setrlimit(RLIMIT_NOFILE, &usual);
  vime::log::set_sink(nullptr);
  REQUIRE(reported);
  CHECK(line.get().find("accept a connection: Too many open files") != std::string::npos);
  CHECK(connection.receive_all().find("\r\n\r\nwait") != std::string::npos);
}
