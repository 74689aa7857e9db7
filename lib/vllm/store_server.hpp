// The server of a TCPStore, as vLLM's workers use one when they join an NCCL group with a trainer: each connects,
// counts itself in and waits for the group's unique id. It serves on a thread of its own from construction to
// destruction, any number of clients; what a client does wrong is logged and costs that client its connection. Who can
// reach the port can read and write all keys: listen on loopback or on the run's own network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace vime::vllm {

// Where a worker looks for the pickle of the group's unique id (vllm/pickle.hpp).
inline constexpr char kUniqueIdKey[] = "/broadcast_from/0/0";

class StoreServer {
 public:
  // host: a numeric IPv4 address. Port 0: the kernel chooses. Error{refused} for another host, Error{exhausted} "store:
  // listen on 127.0.0.1:29500: Address already in use".
  explicit StoreServer(const std::string& host, uint16_t port = 0);
  ~StoreServer();  // closes all connections; does not wait for clients
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const;

  // Any thread. Clients that wait for the key are answered.
  void set(const std::string& key, const std::string& value);
  std::optional<std::string> value(const std::string& key) const;
  // How many clients have counted themselves in, so that who waits for a group can say how many are missing.
  int64_t clients_joined() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vime::vllm
