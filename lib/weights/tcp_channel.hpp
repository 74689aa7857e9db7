// One source, many receivers over TCP: how weights reach engines on other devices when there is no NCCL.
//   receiver -> source   hello: magic, u32 rank, u32 token length, token        source -> receiver   one byte: 1 =
//   accepted source -> receiver   message: magic, u64 sequence number, u64 bytes, then the bytes
// Numbers are little-endian. A receiver that stops reading or goes away costs the source nothing but that receiver.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.hpp"

namespace vime::weights {

struct TcpAddress {
  std::string host;  // numeric
  uint16_t port = 0;
  std::string token;
};

// Listens and accepts on a thread of its own until destroyed; send() is for one thread.
class TcpSource {
 public:
  // world_size: the source (rank 0) and all receivers. Port 0: the kernel chooses. Error{exhausted} when it cannot
  // listen.
  TcpSource(const std::string& host, std::string token, int world_size);
  ~TcpSource();
  TcpSource(const TcpSource&) = delete;
  TcpSource& operator=(const TcpSource&) = delete;

  uint16_t port() const;
  // Ranks of [1, world_size) that have said a valid hello. A rank that comes again replaces its old connection.
  std::vector<int> connected() const;

  // Sends one message to every rank of `ranks`. Returns rank -> what went wrong for those that did not get all of it:
  // not connected, closed, too slow (deadline), or given up: `abandoned(rank)` is asked about every 50 ms and ends the
  // wait for that rank.
  std::map<int, std::string> send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                  std::chrono::milliseconds timeout, const std::function<bool(int)>& abandoned);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class TcpReceiver {
 public:
  // Connects and says hello as `rank`. Error{process_failed} names the address and why not, a refusal included.
  TcpReceiver(const TcpAddress& address, int rank, std::chrono::milliseconds timeout);

  // Whether the source has gone, or let this receiver go.
  bool closed() const;
  // The next message, which must have exactly `bytes` bytes.
  void receive(std::byte* into, uint64_t bytes);

 private:
  void read_exactly(void* into, uint64_t bytes, const std::string& what);

  std::string peer_;
  std::chrono::milliseconds timeout_;
  UniqueFd fd_;
  uint64_t sequence_ = 0;
};

}  // namespace vime::weights
