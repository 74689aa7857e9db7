#include "weights/tcp_channel.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

using namespace vime;
using namespace vime::weights;

namespace {

const milliseconds kTimeout{10000};

std::vector<std::byte> random_bytes(size_t count, uint64_t key) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(mix_key(key, i));
  return bytes;
}

bool never(int) {
  return false;
}

}  // namespace

TEST_CASE("every receiver gets every message in order, byte for byte") {
  TcpSource source("127.0.0.1", "token", 4);
  std::vector<std::future<bool>> receivers;
  for (int rank = 1; rank < 4; ++rank) {
    receivers.push_back(std::async(std::launch::async, [&, rank] {
      TcpReceiver receiver({"127.0.0.1", source.port(), "token"}, rank, kTimeout);
      for (uint64_t message = 0; message < 5; ++message) {
        const auto expected = random_bytes(message * 700001, message);
        std::vector<std::byte> got(expected.size());
        receiver.receive(got.data(), got.size());
        if (got != expected) return false;
      }
      return true;
    }));
  }
  const Deadline deadline(kTimeout);
  while (source.connected().size() < 3) deadline.check("receivers");
  for (uint64_t message = 0; message < 5; ++message) {
    const auto bytes = random_bytes(message * 700001, message);
    CHECK(source.send({1, 2, 3}, bytes.data(), bytes.size(), kTimeout, never).empty());
  }
  for (auto& receiver : receivers) CHECK(receiver.get());
}

TEST_CASE("a wrong token or rank is refused and the receiver says so") {
  TcpSource source("127.0.0.1", "token", 2);
  CHECK_THROWS_WITH_AS((TcpReceiver{{"127.0.0.1", source.port(), "other"}, 1, kTimeout}),
                       doctest::Contains("refused rank 1"), Error);
  CHECK_THROWS_AS((TcpReceiver{{"127.0.0.1", source.port(), "token"}, 2, kTimeout}), Error);
  CHECK_THROWS_AS((TcpReceiver{{"127.0.0.1", source.port(), "token"}, 0, kTimeout}), Error);
  CHECK(source.connected().empty());
}

TEST_CASE("a receiver that died costs only itself") {
  TcpSource source("127.0.0.1", "token", 3);
  auto dead = std::make_unique<TcpReceiver>(TcpAddress{"127.0.0.1", source.port(), "token"}, 1, kTimeout);
  TcpReceiver alive({"127.0.0.1", source.port(), "token"}, 2, kTimeout);
  dead.reset();
  const auto bytes = random_bytes(8 << 20, 1);
  auto got = std::async(std::launch::async, [&] {
    std::vector<std::byte> into(bytes.size());
    alive.receive(into.data(), into.size());
    return into == bytes;
  });
  const auto failed = source.send({1, 2}, bytes.data(), bytes.size(), kTimeout, never);
  CHECK(failed.size() == 1);
  CHECK(failed.contains(1));
  CHECK(got.get());
}

TEST_CASE("a receiver that hangs is given up at the deadline, or at once when its engine has answered") {
  TcpSource source("127.0.0.1", "token", 2);
  const auto bytes = random_bytes(32 << 20, 1);  // more than the sockets' buffers hold
  {
    const TcpReceiver hung({"127.0.0.1", source.port(), "token"}, 1, kTimeout);
    const auto failed = source.send({1}, bytes.data(), bytes.size(), milliseconds(200), never);
    REQUIRE(failed.contains(1));
    CHECK(failed.at(1).find("within") != std::string::npos);
  }
  const TcpReceiver refused({"127.0.0.1", source.port(), "token"}, 1, kTimeout);
  const auto failed = source.send({1}, bytes.data(), bytes.size(), kTimeout, [](int) { return true; });
  REQUIRE(failed.contains(1));
  CHECK(failed.at(1) == "given up");
}

TEST_CASE("a message of another size than announced is an error with both sizes") {
  TcpSource source("127.0.0.1", "token", 2);
  TcpReceiver receiver({"127.0.0.1", source.port(), "token"}, 1, kTimeout);
  const auto bytes = random_bytes(100, 1);
  CHECK(source.send({1}, bytes.data(), 100, kTimeout, never).empty());
  std::vector<std::byte> into(101);
  CHECK_THROWS_WITH_AS(receiver.receive(into.data(), 101),
                       doctest::Contains("has 100 bytes, the request announced 101"), Error);
}

TEST_CASE("a receiver whose source goes or says nothing ends with an error that names it") {
  auto source = std::make_unique<TcpSource>("127.0.0.1", "token", 2);
  const uint16_t port = source->port();
  TcpReceiver receiver({"127.0.0.1", port, "token"}, 1, milliseconds(200));
  std::byte into{};
  CHECK_THROWS_WITH_AS(receiver.receive(&into, 1), doctest::Contains("within 200 ms"), Error);
  source.reset();
  CHECK_THROWS_WITH_AS(receiver.receive(&into, 1), doctest::Contains("closed by the peer"), Error);
  CHECK_THROWS_WITH_AS((TcpReceiver{{"127.0.0.1", port, "token"}, 1, kTimeout}), doctest::Contains("127.0.0.1:"),
                       Error);
}

TEST_CASE("a stranger on the port is turned away and the channel serves on") {
  TcpSource source("127.0.0.1", "token", 2);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(source.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const std::string request = "GET / HTTP/1.1\r\nHost: somebody\r\n\r\n";
  REQUIRE(::send(fd, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()));
  char byte = 0;
  CHECK(::recv(fd, &byte, 1, 0) <= 0);
  ::close(fd);
  const TcpReceiver receiver({"127.0.0.1", source.port(), "token"}, 1, kTimeout);
  CHECK(source.connected() == std::vector<int>{1});
}
