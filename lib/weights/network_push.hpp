// The push into engines on devices of their own, run by the one network source (trainer rank 0): every bucket is
// announced to all engines over HTTP and its bytes follow on the weight channel. An engine that fails drops out; the
// others get everything. start, send and finish never throw for what an engine did. One thread.
#pragma once

#include <chrono>
#include <cstddef>
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

class NetworkPush {
 public:
  // host: the address that receivers can reach. Receivers get ranks 1.. in the order of targets.
  NetworkPush(std::string host, std::string token, std::chrono::milliseconds timeout);
  ~NetworkPush();

  // Begins a push of `version`; one push at a time. Targets are the same engines in the same order for the lifetime of
  // this object, unless every one of them needs init again. Their clients outlive finish().
  void start(const std::vector<NetworkTarget>& targets, int64_t version);
  // payload: bucket.bytes bytes with each tensor at its entry's offset, not read any more when this returns.
  void send(const Bucket& bucket, const std::byte* payload);
  // In the order of targets.
  std::vector<EngineResult> finish();

 private:
  struct Member;
  void init_members();

  std::string host_;
  std::string token_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<TcpSource> source_;
  std::vector<Member> members_;  // of the push under way
};

}  // namespace vime::weights
