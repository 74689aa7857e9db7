#include "weights/network_push.hpp"

#include <algorithm>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "weights/tcp_channel.hpp"

namespace vime::weights {

struct NetworkPush::Member {
  PushSession session;
  int rank_offset;
  int workers;
  bool init_needed;
  std::future<http::Outcome> reply;  // to the call under way
  int id() { return session.engine().address().id; }
};

namespace {

// For who takes part in a push that has been given up: a worker that waits in NCCL for the others may never answer.
constexpr std::chrono::seconds kGivenUp{2};

bool ended(const std::future<http::Outcome>& reply) {
  return reply.valid() && reply.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

class TcpNetworkSource final : public NetworkSource {
 public:
  TcpNetworkSource(std::string host, std::string token, int world_size, std::chrono::milliseconds timeout)
      : host_(std::move(host)), token_(std::move(token)), timeout_(timeout), source_(host_, token_, world_size) {}

  Json init_info() const override {
    return {{"backend", "tcp"}, {"master_address", host_}, {"master_port", source_.port()}, {"token", token_}};
  }
  bool all_or_none() const override { return false; }
  void meet(const Abandoned&) override {}  // receivers have connected when their init has been answered
  std::map<int, std::string> send(const std::vector<int>& ranks, const std::byte* data, uint64_t bytes,
                                  const Abandoned& abandoned) override {
    return source_.send(ranks, data, bytes, timeout_, abandoned);
  }
  std::map<int, std::string> complete(const std::vector<int>&, const Abandoned&) override { return {}; }
  bool broken() const override { return false; }

 private:
  std::string host_, token_;
  std::chrono::milliseconds timeout_;
  TcpSource source_;
};

}  // namespace

NetworkPush::NetworkPush(std::string host, std::string token, std::chrono::milliseconds timeout)
    : NetworkPush([host = std::move(host), token = std::move(token), timeout](int world_size) {
        return std::make_unique<TcpNetworkSource>(host, token, world_size, timeout);
      }) {}

NetworkPush::NetworkPush(MakeNetworkSource make_source) : make_source_(std::move(make_source)) {}

NetworkPush::~NetworkPush() = default;

void NetworkPush::start(const std::vector<NetworkTarget>& targets, int64_t version) {
  members_.clear();
  missed_.clear();
  std::vector<int> workers;
  int next_rank = 1;
  for (const NetworkTarget& target : targets) {
    members_.push_back({PushSession(*target.engine, version), next_rank, target.workers, target.init_needed, {}});
    next_rank += target.workers;
    workers.push_back(target.workers);
  }
  const bool anybody_new =
      std::any_of(members_.begin(), members_.end(), [](const Member& member) { return member.init_needed; });
  const bool of_others = source_ && (workers != source_ranks_ || (source_->all_or_none() && anybody_new));
  if (source_ && (of_others || source_->broken())) source_.reset();
  if (!source_) {
    source_ = make_source_(next_rank);
    source_ranks_ = workers;
    for (Member& member : members_) member.init_needed = true;
  }
  init_members();
  // At once: several engines that hang cost the time of one.
  for (Member& member : members_) {
    if (!member.session.failed()) member.reply = member.session.engine().send_start_weight_update();
  }
  for (Member& member : members_) {
    member.session.attempt([&] { member.session.engine().check(member.reply.get()); });
    member.session.started();
  }
}

// All engines are asked at once, since each call blocks until that engine's workers have joined the channel.
void NetworkPush::init_members() {
  const int world = members_.empty() ? 1 : members_.back().rank_offset + members_.back().workers;
  bool asked = false;
  for (Member& member : members_) {
    if (!member.init_needed) continue;
    sent_[member.id()].forget();
    member.session.attempt([&] {
      EngineClient& engine = member.session.engine();
      member.reply = engine.send_init_weight_transfer(
          engine.protocol().network_init_info(source_->init_info(), member.rank_offset, world));
      asked = true;
    });
  }
  if (!asked) return;
  std::string apart;
  try {
    source_->meet(abandoned());
  } catch (const Error& error) {
    apart = error.message();
  }
  for (Member& member : members_) {
    if (!member.init_needed) continue;
    hear(member, apart);
    if (!apart.empty()) member.session.fail(member.session.engine().address().name() + ": " + apart);
  }
}

// Whether the call under way went well. given_up: why nothing more is sent; then the answer is not waited for.
bool NetworkPush::hear(Member& member, const std::string& given_up) {
  if (!given_up.empty() && member.reply.valid() && member.reply.wait_for(kGivenUp) != std::future_status::ready) {
    member.session.fail(member.session.engine().address().name() +
                        ": not waited for, since the push was given up: " + given_up);
    return false;
  }
  member.session.attempt([&] { member.session.engine().check(member.reply.get()); });
  return !member.session.failed();
}

std::vector<int> NetworkPush::ranks_taking_part() const {
  std::vector<int> ranks;
  for (const Member& member : members_) {
    if (member.session.failed()) continue;
    for (int i = 0; i < member.workers; ++i) ranks.push_back(member.rank_offset + i);
  }
  return ranks;
}

// A reply before the bytes are out can only be a refusal: sending on would wait for a reader that has left.
std::function<bool(int)> NetworkPush::abandoned() {
  return [this](int rank) {
    for (const Member& member : members_) {
      if (rank >= member.rank_offset && rank < member.rank_offset + member.workers) return ended(member.reply);
    }
    return false;
  };
}

void NetworkPush::blame(const std::map<int, std::string>& missed) {
  for (Member& member : members_) {
    for (const auto& [rank, problem] : missed) {
      if (rank < member.rank_offset || rank >= member.rank_offset + member.workers) continue;
      member.session.fail(member.session.engine().address().name() + ": worker " +
                          std::to_string(rank - member.rank_offset) + ": " + problem);
    }
  }
}

std::future<http::Outcome> NetworkPush::send_update(Member& member, std::span<const Bucket> buckets) {
  EngineClient& engine = member.session.engine();
  return engine.send_update_weights(engine.protocol().network_update_info(buckets, sent_[member.id()]));
}

void NetworkPush::announce(const std::vector<Bucket>& buckets) {
  if (!source_->all_or_none() || buckets.empty()) return;
  // Nobody can be reached without all: whoever is missing already ends the push here, before the others wait.
  const auto failed =
      std::find_if(members_.begin(), members_.end(), [](const Member& member) { return member.session.failed(); });
  if (failed != members_.end()) {
    for (Member& member : members_) member.session.fail("not sent, because of " + failed->session.error());
    return;
  }
  for (Member& member : members_) {
    member.session.attempt([&] { member.reply = send_update(member, buckets); });
  }
}

void NetworkPush::send(const Bucket& bucket, const std::byte* payload) {
  if (source_->all_or_none()) {
    const std::vector<int> ranks = ranks_taking_part();
    if (!ranks.empty() && missed_.empty()) missed_ = source_->send(ranks, payload, bucket.bytes, abandoned());
    return;
  }
  for (Member& member : members_) {
    if (member.session.failed()) continue;
    member.reply = send_update(member, {&bucket, 1});
  }
  const auto missed = source_->send(ranks_taking_part(), payload, bucket.bytes, abandoned());
  for (Member& member : members_) {
    member.session.attempt([&] {
      member.session.engine().check(member.reply.get());
      sent_[member.id()].arrived();
    });
  }
  blame(missed);
}

std::vector<EngineResult> NetworkPush::finish() {
  if (source_->all_or_none()) {
    const std::vector<int> ranks = ranks_taking_part();
    if (!ranks.empty() && missed_.empty()) missed_ = source_->complete(ranks, abandoned());
    // The engines' own words first: what the source saw is mostly that they were gone.
    const std::string given_up = missed_.empty() ? "" : missed_.begin()->second;
    for (Member& member : members_) {
      if (member.reply.valid() && hear(member, given_up)) sent_[member.id()].arrived();
    }
    blame(missed_);
  }
  std::vector<EngineResult> results;
  for (Member& member : members_) member.session.begin_finish();  // at once, as start()
  for (Member& member : members_) results.push_back(member.session.finish());
  const bool any_failed =
      std::any_of(members_.begin(), members_.end(), [](const Member& member) { return member.session.failed(); });
  if (source_->broken() || (source_->all_or_none() && any_failed)) source_.reset();
  members_.clear();
  return results;
}

}  // namespace vime::weights
