// The sending end of the network channels, as the network push drives it. Built in is TCP; an owner of GPUs brings
// NCCL. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::weights {

// Asked about every 50 ms while something is waited for: whether a rank's engine has already said that it will not take
// part.
using Abandoned = std::function<bool(int rank)>;

class NetworkSource {
 public:
  virtual ~NetworkSource() = default;
  // What receivers have to be told besides their ranks: {"backend", ...}.
  virtual Json init_info() const = 0;
  // Whether a message reaches all ranks or none, as a broadcast does. Then all of an update's messages are announced in
  // one request, so that no answer has to be waited for between them, and after a failure nobody can be reached any
  // more.
  virtual bool all_or_none() const = 0;
  // After the receivers have been told; returns when they are there. Throws when they do not come.
  virtual void meet(const Abandoned& abandoned) = 0;
  // Sends one message to every rank of `ranks`. Returns rank -> what went wrong for those that did not get all of it.
  // When this returns, the memory of the message before this one is not read any more (that of this one neither, unless
  // all_or_none).
  virtual std::map<int, std::string> send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                          const Abandoned& abandoned) = 0;
  // Returns when no memory is read any more; as send().
  virtual std::map<int, std::string> complete(const std::vector<int>& ranks, const Abandoned& abandoned) = 0;
  // Whether nothing more can be sent, to anybody.
  virtual bool broken() const = 0;
};

// world_size: the source, rank 0, and all receivers.
using MakeNetworkSource = std::function<std::unique_ptr<NetworkSource>(int world_size)>;

}  // namespace vime::weights
