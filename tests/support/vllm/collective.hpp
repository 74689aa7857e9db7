// The workers' side of the NCCL group, without NCCL. The unique id comes through the TCPStore as in vLLM. Where its
// bytes are the text "tcp:HOST:PORT" (NULs after it) every worker opens one connection to that address and sends its
// rank and the world's size (u32 each, little-endian); the warm-up all-reduce is a float32 to the trainer and the sum
// back; a broadcast is the buffer's bytes, nothing around them. Any other id would be NCCL's, which there is no GPU
// for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/vllm/socket.hpp"
#include "support/vllm/trace.hpp"

namespace vime::stand_in {

inline constexpr std::size_t kUniqueIdBytes = 128;

struct GroupPlace {
  std::string host;
  uint16_t port = 0;
  int rank_offset = 0;  // of the server's first worker
  int world_size = 0;
  std::string unique_id;  // 128 bytes; empty: the store at host and port has it
};

// The 128 bytes in the pickle of a ncclUniqueId. WorkerError for a pickle that CPython refuses and, in ctypes' words,
// for one that holds something else.
std::string unique_id_of(std::string_view pickle);

class Collective {
 public:
  // Blocks until the whole group is up.
  Collective(const GroupPlace& place, int workers, Trace& trace);

  // One broadcast from rank 0: the same bytes for every worker, or WorkerError.
  std::vector<std::byte> receive(std::size_t bytes);

 private:
  std::vector<Socket> links_;  // of each worker
  Trace& trace_;
};

}  // namespace vime::stand_in
