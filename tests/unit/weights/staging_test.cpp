// Pushes from staging that every bucket overwrites, while the ranks of all slots go through the buckets together.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <span>

#include "base/deadline.hpp"
#include "slot_ranks.hpp"
#include "stored_engine.hpp"
#include "weights/version.hpp"

using namespace vime;
using namespace vime::weights;

namespace {

// Counts what one thread does and lets another wait for it, for at most a time.
class Progress {
 public:
  void advance() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  // Whether the count has come to `least`.
  bool reaches(int least, milliseconds within) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, [&] { return count_ >= least; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// A slot of two ranks that bring every bucket into the same staging, and an engine that dawdles before its second
// worker reads: until rank 1 has overwritten the staging, but no longer than `patience`.
struct StagedSlot {
  explicit StagedSlot(milliseconds patience) : engine(0, {uuid_of(0), uuid_of(1)}) {
    engine.executor.before_worker = [this, patience](int update, int worker) {
      if (worker == 1 && writes.reaches(update + 1, patience)) ++overwritten_too_early;
    };
  }
  // One rank's push; the staging is spoilt when it ends, as the next push would.
  std::optional<EngineResult> push(SlotPush push, const RankWeights& weights, int rank) {
    const SharedArena& own = staging[rank];
    const std::vector<tensor::TensorView> views = weights.views();
    std::span<const tensor::TensorView> left = views;
    push.start();
    for (const Bucket& bucket : pack_buckets(weights.infos(), kBufferBytes)) {
      pack_bucket(bucket, left, own.data());
      if (rank == 1) writes.advance();
      push.send(bucket, {own.handle(), 0, own.bytes()});
    }
    std::memset(own.data(), 0xee, own.bytes());
    if (rank == 1) writes.advance();
    return push.finish();
  }

  SharedArena staging[2] = {SharedArena(64), SharedArena(64)};
  Progress writes;  // of rank 1
  std::atomic<int> overwritten_too_early = 0;
  StoredEngine engine;
};

// Runs both ranks over these groups; the leader's error.
std::string push_staged(StagedSlot& staged, const RankWeights& weights, SlotGroup& first, SlotGroup& second) {
  const placement::Slot slot{0, 0, 2};
  auto follower =
      std::async(std::launch::async, [&] { return staged.push(make_push(slot, 1, second, nullptr, 1), weights, 1); });
  const auto led = staged.push(make_push(slot, 0, first, staged.engine.client.get(), 1), weights, 0);
  CHECK_FALSE(follower.get().has_value());
  REQUIRE(led.has_value());
  return led->error;
}

}  // namespace

TEST_CASE("staging that every bucket overwrites never shows a slow engine torn data") {
  const RankWeights weights(6);
  StagedSlot staged(milliseconds(30));
  ThreadSlot threads(2);
  ThreadSlot::Member first(threads, 0), second(threads, 1);
  CHECK(push_staged(staged, weights, first, second) == "");
  CHECK(first.barriers == 3);
  CHECK(second.barriers == 3);
  CHECK(staged.overwritten_too_early == 0);
  CHECK(version_problems(1, {staged.engine.client->weight_version()}).empty());
  CHECK(checksum_problems(weights.checksums(), {{"engine 0", staged.engine.client->checksums()}}).empty());
}

TEST_CASE("planted.a rank that does not wait for the engine overwrites what its worker still reads") {
  // The wrong rule: only the leader, which has the engine's answer, knows when the staging is free.
  class NoBarrier final : public SlotGroup {
   public:
    explicit NoBarrier(SlotGroup& group) : group_(group) {}
    std::vector<std::string> gather(const std::string& mine) override { return group_.gather(mine); }
    void barrier() override {}

   private:
    SlotGroup& group_;
  };
  StagedSlot staged(milliseconds(20000));
  ThreadSlot threads(2);
  ThreadSlot::Member first(threads, 0), second(threads, 1);
  NoBarrier wrong_first(first), wrong_second(second);
  CHECK(push_staged(staged, RankWeights(6), wrong_first, wrong_second) == "");  // nothing is noticed
  CHECK(staged.overwritten_too_early == 3);
  CHECK(version_problems(1, {staged.engine.client->weight_version()}).empty());
  CHECK_THROWS_WITH_AS(staged.engine.client->checksums(), doctest::Contains("workers differ"), Error);
}

TEST_CASE("an engine that fails in the middle leaves the collectives of all ranks whole and the other engines good") {
  // Two slots of two ranks; before every bucket all four ranks meet, as they do to gather it.
  StoredEngine good(0, {uuid_of(0), uuid_of(1)}), bad(1, {uuid_of(2), uuid_of(3)});
  bad.executor.failing_update = 2;
  const RankWeights weights(4);
  SharedArena staging[4] = {SharedArena(64), SharedArena(64), SharedArena(64), SharedArena(64)};
  ThreadSlot everybody(4), slots[2] = {ThreadSlot(2), ThreadSlot(2)};
  const auto run = [&](int rank) {
    ThreadSlot::Member world(everybody, rank), member(slots[rank / 2], rank % 2);
    StoredEngine& engine = rank < 2 ? good : bad;
    SlotPush push =
        make_push({rank / 2, rank / 2 * 2, 2}, rank, member, rank % 2 == 0 ? engine.client.get() : nullptr, 1);
    const std::vector<tensor::TensorView> views = weights.views();
    std::span<const tensor::TensorView> left = views;
    push.start();
    for (const Bucket& bucket : pack_buckets(weights.infos(), kBufferBytes)) {
      world.barrier();
      pack_bucket(bucket, left, staging[rank].data());
      push.send(bucket, {staging[rank].handle(), 0, staging[rank].bytes()});
    }
    return std::pair(push.finish(), std::array{world.barriers, member.gathers, member.barriers});
  };
  std::vector<std::future<decltype(run(0))>> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(std::async(std::launch::async, run, rank));
  for (int rank = 0; rank < 4; ++rank) {
    const auto [result, collectives] = ranks[static_cast<size_t>(rank)].get();
    CAPTURE(rank);
    CHECK(collectives == std::array{3, 3, 3});
    REQUIRE(result.has_value() == (rank % 2 == 0));
    if (rank == 0) CHECK(result->error == "");
    if (rank == 2) CHECK(result->error.find("planted failure of update 2") != std::string::npos);
  }
  CHECK(checksum_problems(weights.checksums(), {{"engine 0", good.client->checksums()}}).empty());
  CHECK(good.client->weight_version().text == "1");
  CHECK(bad.client->weight_version().text == "default");
  CHECK(bad.executor.finishes == 0);
}
