// What a rank says of a step is taken only where it is what the layout says that the rank holds, whole and compared.
#include "sweep/rank_answer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "unit/sweep/records.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

const placement::Layout kLayout{2, 2, 1, 2};
const std::string kUp = "model.layers.1.mlp.up_proj.weight";

int64_t response_tokens() {
  int64_t count = 0;
  for (const int64_t length : test_responses()) count += length;
  return count;
}

// Rank 3 of the layout: tp 1, dp 1, first stage.
struct Scene {
  StepValues baseline = make_baseline();
  StepRecord record = record_of(make_step(kLayout), &baseline);
  placement::TrainerRank place = record.ranks[3].place;
  rollout::StepAnswer answer = answer_of(record.ranks[3]);

  static rollout::StepAnswer answer_of(const RankRecord& rank) {
    rollout::StepAnswer answer;
    for (const ShardRecord& shard : rank.shards) {
      answer.shards.push_back({shard.name, shard.full_shape, shard.shard.dim, shard.shard.begin, shard.shard.end,
                               shard.shard.shape, shard.gradient, shard.weight});
    }
    answer.logprobs = rank.logprobs;
    answer.logprobs_after = rank.logprobs_after;
    return answer;
  }
  rollout::ShardFigures& named(const std::string& name) {
    return *std::find_if(answer.shards.begin(), answer.shards.end(),
                         [&](const rollout::ShardFigures& shard) { return shard.name == name; });
  }
  RankRecord take(bool compared = true) const {
    return rank_record(answer, test_model(), {place, kLayout}, response_tokens(), compared);
  }
  std::string failure(bool compared = true) const {
    try {
      take(compared);
      return "";
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::check_failed);
      return error.message();
    }
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank's answer is taken for what the rank holds") {
  const Scene scene;
  const RankRecord taken = scene.take();
  const RankRecord& expected = scene.record.ranks[3];
  REQUIRE(taken.shards.size() == expected.shards.size());
  for (size_t i = 0; i < taken.shards.size(); ++i) {
    CHECK(taken.shards[i].name == expected.shards[i].name);
    CHECK(taken.shards[i].shard.begin == expected.shards[i].shard.begin);
    CHECK(taken.shards[i].gradient.largest == expected.shards[i].gradient.largest);
    CHECK(taken.shards[i].weight.squares == expected.shards[i].weight.squares);
  }
  CHECK(taken.logprobs.size() == expected.logprobs.size());
}

TEST_CASE("planted.an answer that lacks a parameter, or has one of another rank, shape or place is a failure") {
  Scene scene;
  std::erase_if(scene.answer.shards, [](const rollout::ShardFigures& shard) { return shard.name == kUp; });
  CHECK(scene.failure() == "rank 3 (tp 1, pp 0, cp 0, dp 1): " + kUp + " is missing");
  scene = Scene();
  scene.answer.shards.push_back(scene.named(kUp));
  CHECK(contains(scene.failure(), kUp + " is there twice"));
  scene.answer.shards.back().name = "model.layers.4.mlp.up_proj.weight";
  CHECK(contains(scene.failure(), "model.layers.4.mlp.up_proj.weight does not belong on this rank"));
  scene = Scene();
  scene.named(kUp).shape = {32, 128};  // the rows' halves side by side
  CHECK(contains(scene.failure(),
                 kUp + ": expected [64, 64], rows 64 to 127 of [128, 64], found [32, 128], rows 64 to 127 of"));
  scene = Scene();
  scene.named(kUp).begin = 0;  // held against the other rank's rows
  scene.named(kUp).end = 64;
  CHECK(contains(scene.failure(), "found [64, 64], rows 0 to 63 of [128, 64]"));
}

TEST_CASE("planted.an answer about less than all elements, or none where there is a baseline, is a failure") {
  Scene scene;
  --scene.named(kUp).weight.compared;
  CHECK(contains(scene.failure(), kUp + ": 4095 elements were held against the baseline, expected 4096"));
  scene = Scene();
  scene.answer = Scene::answer_of(baseline_record(make_step(kLayout)).ranks[3]);
  CHECK(contains(scene.failure(), "model.embed_tokens.weight: 0 elements were held against the baseline, expected"));
  CHECK(scene.failure(false) == "");
}

TEST_CASE("planted.an answer with the log-probs of fewer tokens than the batch has is a failure") {
  Scene scene;
  scene.answer.logprobs.pop_back();
  CHECK(contains(scene.failure(), "log-probs: expected 29 response tokens, found 28"));
  scene = Scene();
  scene.answer.logprobs_after.pop_back();
  CHECK(contains(scene.failure(), "log-probs after the step: expected 29 response tokens, found 28"));
}
