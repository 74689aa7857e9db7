// What the server makes of bytes on the wire.
#include <doctest/doctest.h>

#include <chrono>

#include "raw_socket.hpp"
#include "test_server.hpp"

using testing::TestServer;

namespace {

// Everything that the server sends for `bytes`, until it closes the connection.
std::string replies_to(const TestServer& server, const std::string& bytes) {
  auto connection = raw::Connection::to(server.server.port());
  connection.send(bytes);
  return connection.receive_all();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("a malformed request is answered 400 and ends the connection") {
  TestServer server;
  server.start();
  for (const char* bytes :
       {"nonsense\r\n\r\n", "GET /echo HTTP/9.9\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: -5\r\n\r\n", "POST /echo HTTP/1.1\r\nContent-Length: 12x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"}) {
    CAPTURE(bytes);
    const std::string reply = replies_to(server, bytes);
    CHECK(contains(reply, "HTTP/1.1 400 "));
    CHECK(contains(reply, "malformed request: "));
    CHECK(contains(reply, "Connection: close"));
  }
}

TEST_CASE("a target with a broken percent sign is answered 400") {
  TestServer server;
  server.start();
  for (const char* target : {"/a%", "/a%4", "/a%zz", "/a?k=%", "/a?%g0=1", "a"}) {
    CAPTURE(target);
    const std::string reply = replies_to(server, std::string("GET ") + target + " HTTP/1.1\r\n\r\n");
    CHECK(contains(reply, "HTTP/1.1 400 "));
    CHECK(contains(reply, "malformed target"));
  }
}

TEST_CASE("an endless request head is answered 431") {
  TestServer server;
  server.start();
  CHECK(contains(replies_to(server, "GET /echo HTTP/1.1\r\nx-long: " + std::string(200'000, 'a') + "\r\n\r\n"),
                 "HTTP/1.1 431 "));
}

TEST_CASE("a chunked body is put together, and its length is limited") {
  vime::http::ServerOptions options;
  options.max_body_bytes = 20;
  TestServer server(options);
  server.start();
  const std::string head = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
  CHECK(contains(replies_to(server, head + "5\r\nhello\r\n7;ext=1\r\n, world\r\n0\r\n\r\n"), "\r\n\r\nhello, world"));
  CHECK(contains(replies_to(server, head + "f\r\n123456789012345\r\nf\r\n123456789012345\r\n0\r\n\r\n"),
                 "HTTP/1.1 413 "));
}

TEST_CASE("a client that is refused while it still sends can read the answer to its end") {
  vime::http::ServerOptions options;
  options.max_body_bytes = 20;
  TestServer server(options);
  server.start();
  auto connection = raw::Connection::to(server.server.port());
  connection.send("POST /echo HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n" + std::string(100'000, 'x'));
  CHECK(contains(connection.receive_all(), "HTTP/1.1 413 "));
  // A server that closes with bytes unread resets the connection, and far from loopback the answer may be lost with it.
  CHECK_FALSE(connection.is_reset_within(std::chrono::milliseconds(100)));
}

TEST_CASE("a client that asks whether to go on is told to") {
  TestServer server;
  server.start();
  auto connection = raw::Connection::to(server.server.port());
  connection.send("POST /echo HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n");
  CHECK(contains(connection.receive_until("\r\n\r\n"), "HTTP/1.1 100 "));
  connection.send("body");
  CHECK(contains(connection.receive_all(), "\r\n\r\nbody"));
}

TEST_CASE("a HEAD request gets no body, so that the next reply starts where it should") {
  TestServer server;
  server.start();
  const std::string replies = replies_to(server,
                                         "HEAD /echo HTTP/1.1\r\n\r\n"
                                         "POST /echo HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend");
  CHECK(contains(replies, "HTTP/1.1 405 "));
  CHECK(contains(replies, "Allow: POST\r\n"));
  CHECK_FALSE(contains(replies, "does not take"));
  CHECK(contains(replies, "\r\n\r\nHTTP/1.1 200 OK\r\n"));
  CHECK(replies.substr(replies.size() - 3) == "end");
}

TEST_CASE("requests sent in one go are answered one after the other") {
  TestServer server;
  server.start();
  std::string bytes;
  for (int i = 0; i < 50; ++i) {
    bytes += "POST /echo HTTP/1.1\r\nContent-Length: 4\r\n\r\n<" + std::to_string(10 + i) + ">";
  }
  bytes += "POST /echo HTTP/1.1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlast";
  const std::string replies = replies_to(server, bytes);
  CHECK(count(replies, "HTTP/1.1 200 OK\r\n") == 51);
  CHECK(replies.find("<10>") < replies.find("<11>"));
  CHECK(replies.find("<58>") < replies.find("<59>"));
  CHECK(replies.substr(replies.size() - 4) == "last");
}

TEST_CASE("an HTTP/1.0 client is answered and disconnected") {
  TestServer server;
  server.start();
  CHECK(contains(replies_to(server, "POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nold"), "\r\n\r\nold"));
}

TEST_CASE("a connection closed in the middle of a request does no harm") {
  TestServer server;
  server.start();
  for (const char* part :
       {"", "PO", "POST /echo HTTP/1.1\r\nContent-Le", "POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"}) {
    auto connection = raw::Connection::to(server.server.port());
    connection.send(part);
    connection.shut_down_sending();
    CHECK(connection.receive_all().empty());
  }
  CHECK(contains(replies_to(server, "POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nok"), "\r\n\r\nok"));
}

TEST_CASE("a wrong token is noticed before the body is read") {
  vime::http::ServerOptions options;
  options.token = "right";
  TestServer server(options);
  server.start();
  auto connection = raw::Connection::to(server.server.port());
  connection.send("POST /echo HTTP/1.1\r\nx-vime-token: wrong\r\nContent-Length: 1000000\r\n\r\n");
  CHECK(contains(connection.receive_until("\r\n\r\n"), "HTTP/1.1 403 "));
}
