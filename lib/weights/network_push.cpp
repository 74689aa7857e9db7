#include "weights/network_push.hpp"

#include <future>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::weights {

struct NetworkPush::Member {
  PushSession session;
  int rank_offset;
  int workers;
  bool init_needed;
  std::future<http::Outcome> reply;  // to the call under way
};

namespace {

bool ended(const std::future<http::Outcome>& reply) {
  return reply.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

NetworkPush::NetworkPush(std::string host, std::string token, std::chrono::milliseconds timeout)
    : host_(std::move(host)), token_(std::move(token)), timeout_(timeout) {}

NetworkPush::~NetworkPush() = default;

void NetworkPush::start(const std::vector<NetworkTarget>& targets, int64_t version) {
  members_.clear();
  int next_rank = 1;
  for (const NetworkTarget& target : targets) {
    members_.push_back({PushSession(*target.engine, version), next_rank, target.workers, target.init_needed, {}});
    next_rank += target.workers;
  }
  init_members();
  // At once: several engines that hang cost the time of one.
  for (Member& member : members_) {
    if (!member.session.failed()) member.reply = member.session.engine().send_start_weight_update();
  }
  for (Member& member : members_) {
    member.session.attempt([&] { member.session.engine().check(member.reply.get()); });
  }
}

// All engines are asked at once, since each call blocks until that engine's workers have joined the channel.
void NetworkPush::init_members() {
  const int world = std::accumulate(members_.begin(), members_.end(), 1,
                                    [](int sum, const Member& member) { return sum + member.workers; });
  if (!source_) source_ = std::make_unique<TcpSource>(host_, token_, world);
  for (Member& member : members_) {
    if (!member.init_needed) continue;
    member.reply = member.session.engine().send_init_weight_transfer({{"backend", "tcp"},
                                                                      {"master_address", host_},
                                                                      {"master_port", source_->port()},
                                                                      {"rank_offset", member.rank_offset},
                                                                      {"world_size", world},
                                                                      {"token", token_}});
  }
  for (Member& member : members_) {
    if (!member.init_needed) continue;
    member.session.attempt([&] { member.session.engine().check(member.reply.get()); });
  }
}

void NetworkPush::send(const Bucket& bucket, const std::byte* payload) {
  const Json update_info = manifest_json(bucket);
  std::vector<int> ranks;
  std::vector<Member*> of_rank(1, nullptr);
  for (Member& member : members_) {
    of_rank.resize(static_cast<size_t>(member.rank_offset + member.workers), &member);
    if (member.session.failed()) continue;
    member.reply = member.session.engine().send_update_weights(update_info);
    for (int i = 0; i < member.workers; ++i) ranks.push_back(member.rank_offset + i);
  }
  // A reply before the bytes are out can only be a refusal: sending on would wait for a reader that has left.
  const auto missed = source_->send(ranks, payload, bucket.bytes, timeout_,
                                    [&](int rank) { return ended(of_rank[static_cast<size_t>(rank)]->reply); });
  for (Member& member : members_) {
    if (member.session.failed()) continue;
    member.session.attempt([&] { member.session.engine().check(member.reply.get()); });
    for (const auto& [rank, problem] : missed) {
      if (of_rank[static_cast<size_t>(rank)] == &member) {
        member.session.fail(member.session.engine().address().name() + ": worker " +
                            std::to_string(rank - member.rank_offset) + ": " + problem);
      }
    }
  }
}

std::vector<EngineResult> NetworkPush::finish() {
  std::vector<EngineResult> results;
  for (Member& member : members_) {
    member.session.finish();
    results.push_back({member.session.engine().address().id, member.session.error()});
  }
  members_.clear();
  return results;
}

}  // namespace vime::weights
