#include "vllm/store_server.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "unit/http/raw_socket.hpp"
#include "vllm/store_messages.hpp"

using namespace vime;
using namespace vime::vllm;

namespace {

std::string number(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string field(const std::string& content) {
  return number(content.size(), 8) + content;
}

std::string list(const std::vector<std::string>& keys) {
  std::string text = number(keys.size(), 8);
  for (const std::string& key : keys) text += field(key);
  return text;
}

// What one vLLM worker sends, step by step.
const std::string kValidate("\x00\xce\xf7\x85\x3c", 5);
const std::string kPing = "\x0d" + number(4711, 4);
const std::string kJoin = "\x04" + field("init/") + number(1, 8);
const std::string kWait = "\x06" + list({"/broadcast_from/0/0"});
const std::string kGet = "\x03" + field("/broadcast_from/0/0");
const std::string kReady(1, '\0'), kNotReady(1, '\1');

raw::Connection greeted(const StoreServer& server) {
  raw::Connection client = raw::Connection::to(server.port());
  client.send(kValidate);
  return client;
}

std::string ask(raw::Connection& client, const std::string& message, std::size_t reply_bytes) {
  client.send(message);
  return client.receive(reply_bytes);
}

// The log's lines while it lives; only one lives at a time.
class LogLines {
 public:
  LogLines() {
    lines().clear();
    log::set_sink([](const std::string& line) {
      const std::lock_guard lock(mutex());
      lines() += line + "\n";
    });
  }
  ~LogLines() { log::set_sink(nullptr); }
  bool contain(const std::string& text) const {
    const std::lock_guard lock(mutex());
    return lines().find(text) != std::string::npos;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static std::string& lines() {
    static std::string lines;
    return lines;
  }
};

// Sends what no worker sends; the connection must be closed with a line that says why, and the server serve on.
void check_closed(const std::string& sent, const std::string& reason) {
  CAPTURE(reason);
  StoreServer server("127.0.0.1");
  const LogLines log;
  raw::Connection client = raw::Connection::to(server.port());
  client.send(sent);
  client.shut_down_sending();
  client.receive_all();
  raw::Connection other = greeted(server);
  CHECK(ask(other, kPing, 4) == number(4711, 4));
  CHECK(log.contain("closed the connection of 127.0.0.1:"));
  CHECK(log.contain(reason));
}

std::ptrdiff_t thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

}  // namespace

TEST_CASE("a worker that comes before the unique id is there gets it as soon as it is") {
  StoreServer server("127.0.0.1");
  raw::Connection worker = greeted(server);
  CHECK(ask(worker, kPing, 4) == number(4711, 4));
  CHECK(server.clients_joined() == 0);
  // Both in one go: were the wait answered at once, the answer would come with that to the join.
  CHECK(ask(worker, kJoin + kWait, 8) == number(1, 8));
  CHECK(server.clients_joined() == 1);
  server.set(kUniqueIdKey, "pickle");
  CHECK(worker.receive(1) == kReady);
  CHECK(ask(worker, kGet, 14) == field("pickle"));
}

TEST_CASE("a worker that comes after the unique id gets it at once") {
  StoreServer server("127.0.0.1");
  server.set(kUniqueIdKey, std::string(223, 'p'));
  raw::Connection worker = raw::Connection::to(server.port());
  const std::string replies = number(4711, 4) + number(1, 8) + kReady + field(std::string(223, 'p'));
  CHECK(ask(worker, kValidate + kPing + kJoin + kWait + kGet, replies.size()) == replies);
}

TEST_CASE("messages may come byte by byte") {
  StoreServer server("127.0.0.1");
  server.set(kUniqueIdKey, "pickle");
  raw::Connection worker = raw::Connection::to(server.port());
  raw::Connection other = greeted(server);
  for (const char byte : kValidate + kPing + kJoin + kWait + kGet) {
    worker.send(std::string(1, byte));
    CHECK(ask(other, kPing, 4) == number(4711, 4));  // and so the server has read the byte before the next is sent
  }
  const std::string replies = number(4711, 4) + number(1, 8) + kReady + field("pickle");
  CHECK(worker.receive(replies.size()) == replies);
}

TEST_CASE("many workers wait together and all are answered") {
  StoreServer server("127.0.0.1");
  std::vector<raw::Connection> workers;
  for (uint64_t i = 1; i <= 200; ++i) {
    workers.push_back(greeted(server));
    CHECK(ask(workers.back(), kJoin + kWait, 8) == number(i, 8));
  }
  CHECK(server.clients_joined() == 200);
  server.set(kUniqueIdKey, "pickle");
  for (raw::Connection& worker : workers) {
    CHECK(worker.receive(1) == kReady);
    CHECK(ask(worker, kGet, 14) == field("pickle"));
  }
}

TEST_CASE("a wait for several keys is answered when the last of them comes, whoever sets it") {
  StoreServer server("127.0.0.1");
  raw::Connection waiting = greeted(server), setting = greeted(server);
  CHECK(ask(waiting, kPing + "\x06" + list({"/a", "/b"}), 4) == number(4711, 4));
  server.set("/a", "1");
  CHECK(ask(setting, "\x05" + list({"/a"}), 1) == kReady);
  CHECK(ask(setting, "\x05" + list({"/a", "/b"}), 1) == kNotReady);
  setting.send("\x01" + field("/b") + field("2"));
  CHECK(waiting.receive(1) == kReady);
  CHECK(server.value("/b") == "2");
}

TEST_CASE("a cancelled wait is confirmed and the connection goes on") {
  StoreServer server("127.0.0.1");
  raw::Connection client = greeted(server);
  CHECK(ask(client, kWait + "\x0c", 1) == kNotReady);
  server.set(kUniqueIdKey, "pickle");
  CHECK(ask(client, kPing, 4) == number(4711, 4));
  CHECK(ask(client, kGet, 14) == field("pickle"));
}

TEST_CASE("the other commands do what PyTorch's own store does") {
  StoreServer server("127.0.0.1");
  raw::Connection client = greeted(server);
  const auto compare_set = [](const std::string& expected, const std::string& desired) {
    return "\x02" + field("/c") + field(expected) + field(desired);
  };
  CHECK(ask(client, compare_set("x", "y"), 9) == field("x"));  // absent: back comes what was expected
  CHECK_FALSE(server.value("/c").has_value());
  CHECK(ask(client, compare_set("", "one"), 11) == field("one"));
  CHECK(ask(client, compare_set("two", "three"), 11) == field("one"));
  CHECK(ask(client, compare_set("one", "two"), 11) == field("two"));
  CHECK(ask(client, "\x04" + field("/n") + number(5, 8), 8) == number(5, 8));
  CHECK(ask(client, "\x04" + field("/n") + number(static_cast<uint64_t>(-7), 8), 8) ==
        number(static_cast<uint64_t>(-2), 8));
  CHECK(server.value("/n") == "-2");
  CHECK(ask(client, std::string("\x07"), 8) == number(2, 8));
  client.send("\x09" + field("/c") + field("!") + "\x09" + field("/d") + field("new"));
  CHECK(ask(client, "\x0a" + list({"/c", "/d"}), 23) == field("two!") + field("new"));
  client.send("\x0b" + number(2, 8) + field("/e") + field("5") + field("/f") + field("6"));
  CHECK(ask(client, "\x08" + field("/e"), 8) == number(1, 8));
  CHECK(ask(client, "\x08" + field("/e"), 8) == number(0, 8));
  CHECK(server.value("/f") == "6");
}

TEST_CASE("who does not speak the protocol costs only its own connection") {
  const std::string strangers = "its first bytes are not those of a TCPStore";
  check_closed("GET / HTTP/1.1\r\n\r\n", "there is no command 71");
  check_closed(std::string("\x00\xce\xf7\x85\x3d", 5), strangers);
  check_closed(kPing, strangers);
  check_closed(kValidate + "\x0e" + field("/queue"), "there is no command 14");
  check_closed(kValidate + kGet, "wants the value of /broadcast_from/0/0, which has none");
  check_closed(kValidate + kWait + kPing, "it asks while it waits for /broadcast_from/0/0");
  check_closed(kValidate + kJoin.substr(0, 9), "it ended in the middle of a message");
  check_closed(kValidate + "\x01" + field("/a") + field("x") + "\x04" + field("/a") + number(1, 8),
               "which is no number");
}

TEST_CASE("lengths above the limit are refused before their bytes come") {
  check_closed(kValidate + "\x03" + number(kMaxStoreMessage + 1, 8), "is announced, above the limit");
  check_closed(kValidate + "\x03" + number(~0ull, 8), "is announced, above the limit");
  check_closed(kValidate + "\x06" + number(1ull << 60, 8), "is announced, above the limit");
  // Each text is short enough, the message is not; cut where the server has read all of it, so that it need not reset.
  std::string many = kValidate + "\x06" + number(100000, 8);
  for (int i = 0; i < 50000; ++i) many += field(std::string(100, 'k'));
  many.resize(kValidate.size() + kMaxStoreMessage + 1);
  check_closed(many, "a message goes on after 4.00 MiB");
}

TEST_CASE("a client that reads late gets all its answers, and nobody waits for it") {
  StoreServer server("127.0.0.1");
  server.set("/big", std::string(1 << 20, 'b'));
  raw::Connection client = greeted(server);
  std::string gets;
  for (int i = 0; i < 64; ++i) gets += "\x03" + field("/big");
  client.send(gets);
  raw::Connection other = greeted(server);
  CHECK(ask(other, kPing, 4) == number(4711, 4));
  CHECK(client.receive(64 * ((1 << 20) + 8)).size() == 64 * ((1 << 20) + 8));
}

TEST_CASE("the server ends at once with clients that wait, and leaves no thread") {
  const std::ptrdiff_t before = thread_count();
  auto server = std::make_unique<StoreServer>("127.0.0.1");
  CHECK(thread_count() == before + 1);
  raw::Connection waiting = greeted(*server), halfway = greeted(*server);
  CHECK(ask(waiting, kJoin + kWait, 8) == number(1, 8));
  halfway.send(kJoin.substr(0, 9));
  const auto start = SteadyClock::now();
  server.reset();
  CHECK(seconds_since(start) < 5);
  CHECK(thread_count() == before);
  CHECK(waiting.receive_all().empty());
}

TEST_CASE("a port that is taken and a host that is no address are errors that say so") {
  const StoreServer server("127.0.0.1");
  const std::string taken = "listen on 127.0.0.1:" + std::to_string(server.port()) + ": Address already in use";
  CHECK_THROWS_WITH_AS(StoreServer("127.0.0.1", server.port()), doctest::Contains(taken.c_str()), Error);
  CHECK_THROWS_WITH_AS(StoreServer("localhost"), doctest::Contains("no numeric IPv4 address"), Error);
}
