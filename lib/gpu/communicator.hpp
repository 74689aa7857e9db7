// A group of processes with one GPU each, or a share of one, that exchange memory through NCCL. All ranks call the same
// operations in the same order. An operation is given to a stream and returns at once; the memory is the stream's until
// it is done.
//
// Nothing here waits for ever: joining, every operation and every wait has the group's timeout. A rank that is not
// there any more, hangs, or got out of step is found by that deadline, by this thread or by one that watches the
// operations given to the GPU; then the communicator is aborted, which ends its kernels on this GPU, so that waits
// elsewhere (LibTorch's own, say) end too. Every call after that is Error{process_failed} with the reason. One thread
// calls; leave() and broken() may come from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/streams.hpp"

namespace vime::gpu {

enum class Scalar { u8, i64, f16, bf16, f32, f64 };
uint64_t bytes_of(Scalar element);

enum class Reduction { sum, max };

struct CommunicatorOptions {
  std::string group;  // for errors: "tp", "weights"
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{60'000};  // of joining, and of each operation from when it is given to the stream
  // Asked every few milliseconds by the thread that waits: a text that is not empty ends the wait, and is why.
  std::function<std::string()> given_up = {};
};

class Communicator {
 public:
  // Made by one rank of a new communicator, for all; that rank's process must live until all have joined.
  static std::string unique_id();

  // Blocks until all ranks have joined. Works on the calling thread's GPU. Error{refused} for text that is no id.
  Communicator(CommunicatorOptions options, const std::string& unique_id);
  // Waits for what is under way, at most the timeout.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const std::string& group() const;

  void broadcast(void* data, uint64_t bytes, int root, Stream stream);
  // all: every rank's bytes, in rank order; `mine` may be the own place in it.
  void all_gather(const void* mine, void* all, uint64_t bytes, Stream stream);
  // In place where from == to. The order of a sum is NCCL's: the same from run to run, and the same bits on every rank.
  void all_reduce(const void* from, void* to, uint64_t count, Scalar element, Reduction reduction, Stream stream);
  // from: `size` parts of `count` elements; to: the reduction of this rank's part.
  void reduce_scatter(const void* from, void* to, uint64_t count, Scalar element, Reduction reduction, Stream stream);

  // Point to point, all at once: the transfers of one call cannot wait for each other. Both sides name the same bytes.
  struct Send {
    int to = 0;
    const void* data = nullptr;
    uint64_t bytes = 0;
  };
  struct Receive {
    int from = 0;
    void* data = nullptr;
    uint64_t bytes = 0;
  };
  void exchange(const std::vector<Send>& sends, const std::vector<Receive>& receives, Stream stream);

  // Blocks until the stream has done everything given to it, operations of this group or not.
  void wait(Stream stream);
  // Likewise, until the place that the event marks.
  void wait(const Event& event);

  // For a rank that cannot go on, or knows that another cannot. Local: the other ranks find out by their deadlines.
  void leave(const std::string& reason);
  bool broken() const;

 private:
  struct State;
  void wait_until(const std::function<bool()>& done);
  std::unique_ptr<State> state_;
};

}  // namespace vime::gpu
