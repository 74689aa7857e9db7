#include "support/vllm/store_client.hpp"

#include <unistd.h>

#include <cstring>

#include "base/hex.hpp"
#include "support/vllm/failures.hpp"
#include "support/vllm/socket.hpp"

namespace vime::stand_in {
namespace {

constexpr const char* kKey = "/broadcast_from/0/0";

template <typename Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

std::string text(const std::string& value) {
  return raw(uint64_t{value.size()}) + value;
}

class StoreConnection {
 public:
  StoreConnection(int worker, Socket socket, Trace& trace)
      : name_("worker " + std::to_string(worker)), socket_(std::move(socket)), trace_(trace) {}

  void send(const std::string& bytes) {
    trace_.line(name_ + " > " + hex_of(bytes.data(), bytes.size()));
    socket_.send(bytes);
  }
  std::string receive(std::size_t count) {
    const std::string bytes = socket_.receive(count);
    trace_.line(name_ + " < " + hex_of(bytes.data(), bytes.size()));
    return bytes;
  }

 private:
  std::string name_;
  Socket socket_;
  Trace& trace_;
};

constexpr uint64_t kLongestValue = 1u << 20;

}  // namespace

std::string fetch_unique_id(int worker, const std::string& host, uint16_t port, std::chrono::milliseconds timeout,
                            Trace& trace) {
  StoreConnection store(worker, Socket::connect(host, port, timeout), trace);
  store.send(std::string("\x00", 1) + raw(uint32_t{0x3C85F7CE}));
  const auto nonce = static_cast<uint32_t>(::getpid());
  store.send("\x0D" + raw(nonce));
  if (store.receive(4) != raw(nonce)) throw WorkerError("Ping failed, invalid nonce returned");
  store.send("\x04" + text("init/") + raw(int64_t{1}));
  int64_t joined = 0;
  std::memcpy(&joined, store.receive(8).data(), sizeof joined);
  if (joined < 1) throw WorkerError("the store counts " + std::to_string(joined) + " members after one has joined");
  store.send("\x06" + raw(uint64_t{1}) + text(kKey));
  if (store.receive(1) != std::string(1, '\0')) throw WorkerError("Stop_waiting response is expected");
  store.send("\x03" + text(kKey));
  uint64_t length = 0;
  std::memcpy(&length, store.receive(8).data(), sizeof length);
  if (length > kLongestValue) throw WorkerError("the store's value has " + std::to_string(length) + " bytes");
  return store.receive(length);
}

}  // namespace vime::stand_in
