// The push into engines on devices of their own, run by the one network source (trainer rank 0): what comes is
// announced to all engines over HTTP and its bytes follow on the weight channel. Over TCP every bucket is a request of
// its own, an engine that fails drops out, and the others get everything. Over NCCL one request announces all buckets,
// and an engine that fails in the middle takes the communicator with it: the push has failed for all, and the next one
// makes a new communicator for those that are then there. start, send and finish never throw for what an engine did.
// One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weights/bucket.hpp"
#include "weights/manifest.hpp"
#include "weights/network_source.hpp"
#include "weights/session.hpp"

namespace vime::weights {

struct NetworkTarget {
  EngineClient* engine = nullptr;
  int workers = 0;
  bool init_needed = false;
};

class NetworkPush {
 public:
  // Over TCP. host: the address that receivers can reach. Receivers get ranks 1.. in the order of targets.
  NetworkPush(std::string host, std::string token, std::chrono::milliseconds timeout);
  explicit NetworkPush(MakeNetworkSource make_source);
  ~NetworkPush();

  // Begins a push of `version`; one push at a time. Targets are the same engines in the same order for the lifetime of
  // this object, unless every one of them needs init again. Their clients outlive finish().
  void start(const std::vector<NetworkTarget>& targets, int64_t version);
  // All that send() will be given, in its order. Over TCP it may be left out.
  void announce(const std::vector<Bucket>& buckets);
  // payload: bucket.bytes bytes with each tensor at its entry's offset. It may be read until the next send() or
  // finish() returns; over TCP, until this does.
  void send(const Bucket& bucket, const std::byte* payload);
  // In the order of targets.
  std::vector<EngineResult> finish();

 private:
  struct Member;
  void init_members();
  bool hear(Member& member, const std::string& given_up);
  std::vector<int> ranks_taking_part() const;
  std::function<bool(int)> abandoned();
  std::future<http::Outcome> send_update(Member& member, std::span<const Bucket> buckets);
  void blame(const std::map<int, std::string>& missed);

  MakeNetworkSource make_source_;
  std::unique_ptr<NetworkSource> source_;
  std::vector<int> source_ranks_;      // how many workers of each engine the source was made for
  std::map<int, SentManifests> sent_;  // by engine
  std::vector<Member> members_;        // of the push under way
  std::map<int, std::string> missed_;  // likewise, by rank: what went wrong where all get a message or none
};

}  // namespace vime::weights
