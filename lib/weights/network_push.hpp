// The push into engines on devices of their own, run by the one network source (trainer rank 0): every bucket is
// announced to all engines over HTTP and its bytes follow on the weight channel. An engine that fails drops out; the
// others get everything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weights/bucket.hpp"
#include "weights/session.hpp"
#include "weights/tcp_channel.hpp"

namespace vime::weights {

struct NetworkTarget {
  EngineClient* engine = nullptr;
  int workers = 0;
  bool init_needed = false;
};

// Where a tensor's bytes are on the source.
struct SourceTensor {
  tensor::TensorInfo info;
  const std::byte* data = nullptr;
};

class NetworkPush {
 public:
  // host: the address that receivers can reach. Receivers get ranks 1.. in the order of targets.
  NetworkPush(std::string host, std::string token, std::chrono::milliseconds timeout);

  // Targets are the same engines in the same order for the lifetime of this object, unless every one of them needs init
  // again.
  std::vector<EngineResult> push(const std::vector<NetworkTarget>& targets, const std::vector<SourceTensor>& tensors,
                                 uint64_t buffer_bytes, int64_t version);

  uint64_t staging_bytes() const { return staging_.capacity(); }  // peak extra memory

 private:
  struct Member;
  void init_members(std::vector<Member>& members);
  void send_bucket(std::vector<Member>& members, const Bucket& bucket);

  std::string host_;
  std::string token_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<TcpSource> source_;
  std::vector<std::byte> staging_;
};

}  // namespace vime::weights
