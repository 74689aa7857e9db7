// A leg of any layout against the baseline: equal records pass, and each kind of fault is found, named and placed.
#include "sweep/compare.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "sweep/baseline.hpp"
#include "unit/sweep/records.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

const placement::Layout kLayout{2, 2, 2, 1};
const std::string kUp = "model.layers.3.mlp.up_proj.weight";  // [128, 64]; cut in rows; held by the second stage
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

CompareOptions options() {
  return {float32_tolerances(10.0), 0.5, test_responses()};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const Check& named(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& c) { return c.name == name; });
  REQUIRE(found != checks.end());
  return *found;
}

// The leg fails in this check alone, with this sentence.
void check_fails(const StepValues& leg, const std::string& name, const std::vector<std::string>& parts) {
  for (const Check& check : compare_values(make_baseline(leg.step), leg, options())) {
    CAPTURE(check.name);
    CAPTURE(check.failure);
    CHECK(check.passed() == (check.name != name));
    if (check.name != name) continue;
    CHECK_FALSE(check.error <= check.tolerance);
    for (const std::string& part : parts) CHECK(contains(check.failure, part));
  }
}

float largest_of_gradients(const StepValues& record) {
  float largest = 0;
  for (const ShardValues& shard : record.ranks[0].shards) {
    for (const float value : shard.gradient) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// Of a parameter that is cut into shards, any of which may lack its largest element.
double largest_gradient_of(const std::string& name) {
  StepValues baseline = make_baseline();
  double largest = 0.0;
  for (const float value : shard_named(baseline, 0, name).gradient)
    largest = std::max(largest, std::abs(double{value}));
  return largest;
}

}  // namespace

TEST_CASE("the same contents pass in every layout with errors of 0") {
  for (const placement::Layout& layout :
       {placement::Layout{1, 1, 1, 1}, {8, 1, 1, 1}, {1, 4, 1, 2}, {2, 2, 2, 1}, {1, 1, 8, 1}, {4, 2, 1, 1}}) {
    for (const Check& check : compare_values(make_baseline(), make_step(layout), options())) {
      CAPTURE(check.name);
      CHECK(check.failure == "");
      CHECK(check.error == 0.0);
      CHECK((check.name == "coverage" || !check.where.empty()));
    }
  }
}

TEST_CASE("planted.a sign flip in one element of a gradient is found with element, rank and size") {
  StepValues leg = make_step(kLayout);
  ShardValues& shard = shard_named(leg, 7, kUp);  // rows 64 to 127
  const float before = shard.gradient[64 * 3 + 17];
  shard.gradient[64 * 3 + 17] = -before;
  check_fails(leg, "gradients",
              {"step 1: gradient of " + kUp + " differs on rank 7 (tp 1, pp 1, cp 1, dp 0): element [67, 17] is",
               ", baseline ", "; relative error ", ", allowed 0.0001 (first of 1 parameter)"});
}

TEST_CASE("planted.two rows of a gradient that changed places are found") {
  StepValues leg = make_step(kLayout);
  std::vector<float>& gradient = shard_named(leg, 4, kUp).gradient;
  std::swap_ranges(gradient.begin() + 64, gradient.begin() + 128, gradient.begin() + 128);
  check_fails(leg, "gradients", {kUp + " differs on rank 4"});
}

TEST_CASE("planted.one element that is twice as large is found wherever it is not noise") {
  // Elements are from 1e-3 to 1 of the largest, so each of them matters.
  for (const int element : {0, 1, 100, 4095}) {
    StepValues leg = make_step(kLayout);
    shard_named(leg, 5, kUp).gradient[static_cast<size_t>(element)] *= 2;
    check_fails(leg, "gradients", {kUp + " differs on rank 5"});
  }
}

TEST_CASE("planted.columns that are cut are compared at their place in the full tensor") {
  StepValues leg = make_step(kLayout);
  const std::string down = "model.layers.4.mlp.down_proj.weight";  // [64, 128], cut in columns
  shard_named(leg, 5, down).gradient[64 * 2 + 1] += 1.0F;
  check_fails(leg, "gradients", {down + " differs on rank 5 (tp 1, pp 1, cp 0, dp 0): element [2, 65] is"});
}

TEST_CASE("planted.several parameters that differ are counted, and the first in checkpoint order is named") {
  StepValues leg = make_step(kLayout);
  shard_named(leg, 6, "model.norm.weight").gradient[0] += 1.0F;
  shard_named(leg, 4, kUp).gradient[0] += 1.0F;
  shard_named(leg, 6, kUp).gradient[0] += 2.0F;
  check_fails(leg, "gradients", {kUp + " differs on rank 4", "(first of 2 parameters; the largest, ", "rank 6 ("});
}

TEST_CASE("planted.a copy that did not get the gradient is found: kv heads, replicas, the tied head") {
  const auto forget = [](const placement::Layout& layout, int rank, const std::string& name) {
    StepValues leg = make_step(layout);
    std::fill(shard_named(leg, rank, name).gradient.begin(), shard_named(leg, rank, name).gradient.end(), 0.0F);
    check_fails(leg, "gradients", {name + " differs on rank " + std::to_string(rank) + " "});
  };
  forget({8, 1, 1, 1}, 5, "model.layers.0.self_attn.k_proj.weight");
  forget({1, 1, 1, 2}, 1, "model.layers.2.mlp.gate_proj.weight");
  forget({1, 1, 2, 1}, 1, "model.layers.2.self_attn.q_norm.weight");
  forget({1, 2, 1, 1}, 1, "model.embed_tokens.weight");
}

TEST_CASE("planted.a copy whose weights are a step behind is found, in learning rates") {
  StepValues leg = make_step({1, 1, 1, 2}, 2);
  shard_named(leg, 1, "model.norm.weight").weight[3] += 0.05F;
  check_fails(leg, "weights",
              {"step 2: weight of model.norm.weight differs on rank 1 (tp 0, pp 0, cp 0, dp 1): element [3] is",
               "; difference in learning rates 0.1, allowed 0.0001"});
}

TEST_CASE("a NaN is a difference wherever it stands") {
  for (const bool in_weight : {false, true}) {
    StepValues leg = make_step(kLayout);
    ShardValues& shard = shard_named(leg, 4, kUp);
    (in_weight ? shard.weight : shard.gradient)[5] = kNaN;
    check_fails(leg, in_weight ? "weights" : "gradients", {"element [0, 5] is nan"});
  }
  StepValues leg = make_step(kLayout);
  leg.loss = kNaN;
  check_fails(leg, "loss", {"loss is nan, baseline 0.25"});
  leg = make_step(kLayout);
  leg.grad_norm = kNaN;
  check_fails(leg, "grad_norm", {"gradient norm is nan, baseline 4"});
}

TEST_CASE("a gradient of 0 is compared with the model's largest: a rounding passes, more does not") {
  const std::string norm = "model.layers.0.input_layernorm.weight";
  StepValues baseline = make_baseline();
  std::fill(shard_named(baseline, 0, norm).gradient.begin(), shard_named(baseline, 0, norm).gradient.end(), 0.0F);
  for (const double share : {0.5, 2.0}) {
    StepValues leg = make_step({1, 1, 1, 1});
    ShardValues& shard = shard_named(leg, 0, norm);
    std::fill(shard.gradient.begin(), shard.gradient.end(), 0.0F);
    shard.gradient[9] = static_cast<float>(share * 1e-4 * kGradientFloor) * largest_of_gradients(baseline);
    const std::vector<Check> checks = compare_values(baseline, leg, options());
    CHECK(named(checks, "gradients").passed() == (share < 1.0));
    CHECK(named(checks, "gradients").error == doctest::Approx(share * 1e-4).epsilon(1e-3));
  }
}

TEST_CASE("a parameter with small gradients is held against itself down to the floor") {
  CHECK(gradient_scale(2.0, 10.0) == 2.0);
  CHECK(gradient_scale(2.0, 1000.0) == 1000.0 * kGradientFloor);
  CHECK(gradient_scale(0.0, 0.0) == 0.0);
}

TEST_CASE("where all gradients are 0, any other is a difference") {
  StepValues baseline = make_baseline(), leg = make_step({1, 1, 1, 1});
  for (StepValues* record : {&baseline, &leg}) {
    for (ShardValues& shard : record->ranks[0].shards) std::fill(shard.gradient.begin(), shard.gradient.end(), 0.0F);
  }
  CHECK(named(compare_values(baseline, leg, options()), "gradients").passed());
  leg.ranks[0].shards[4].gradient[0] = 1e-30F;
  CHECK_FALSE(named(compare_values(baseline, leg, options()), "gradients").passed());
}

TEST_CASE("every tolerance passes at half and fails at twice") {
  const Tolerances allowed = options().tolerances;
  for (const double share : {0.5, 2.0}) {
    CAPTURE(share);
    const auto passes = [&](const StepValues& leg, const std::string& name, double expected) {
      const Check check = named(compare_values(make_baseline(), leg, options()), name);
      CHECK(check.error == doctest::Approx(share * expected).epsilon(1e-2));
      CHECK(check.passed() == (share < 1.0));
    };
    StepValues leg = make_step(kLayout);
    leg.loss += share * allowed.loss;
    passes(leg, "loss", allowed.loss);
    leg = make_step(kLayout);
    leg.grad_norm *= 1.0 + share * allowed.grad_norm;
    passes(leg, "grad_norm", allowed.grad_norm);
    leg = make_step(kLayout);
    leg.ranks[4].logprobs_after[20] -= share * allowed.logprob;
    passes(leg, "logprobs", allowed.logprob);
    leg = make_step(kLayout);
    leg.ranks[6].shards[0].weight[0] += static_cast<float>(share * allowed.weight * 0.5);
    passes(leg, "weights", allowed.weight);
    leg = make_step(kLayout);
    ShardValues& shard = shard_named(leg, 5, kUp);
    const double scale = largest_gradient_of(kUp);
    shard.gradient[0] += static_cast<float>(share * allowed.gradient * scale);
    passes(leg, "gradients", allowed.gradient);
  }
}

TEST_CASE("log-probs of a sharp model may be off in proportion to the largest, those of a flat one by 1e-5") {
  CHECK(float32_tolerances(0.0).logprob == 1e-5);
  CHECK(float32_tolerances(10.0).logprob == 1e-5);
  CHECK(float32_tolerances(45.0).logprob == doctest::Approx(4.5e-5));
  // The largest is at one token, before or after the step; another token is wrong.
  for (const bool after : {false, true}) {
    const auto sharpen = [&](StepValues record) {
      for (RankValues& rank : record.ranks) {
        double& value = (after ? rank.logprobs_after : rank.logprobs)[2];
        if (!std::isnan(value)) value = -45.0;
      }
      return record;
    };
    const StepValues baseline = sharpen(make_baseline());
    CompareOptions sharp = options();
    sharp.tolerances = float32_baseline({baseline_record(baseline)}).tolerances[0];
    for (const double error : {4e-5, 5e-5}) {
      StepValues leg = sharpen(make_step(kLayout));
      leg.ranks[6].logprobs[6] += error;
      const std::vector<Check> checks = compare_values(baseline, leg, sharp);
      CHECK(named(checks, "logprobs").passed() == (error < 4.5e-5));
      CHECK(named(checks, "logprobs").tolerance == doctest::Approx(4.5e-5));
      std::vector<std::vector<double>> engine;
      size_t token = 0;
      for (const int64_t response : test_responses()) {
        engine.emplace_back();
        for (int64_t i = 0; i < response; ++i) engine.back().push_back(baseline.ranks[0].logprobs_after[token++]);
      }
      engine[2][2] -= error;
      const Check check = compare_engine(baseline_record(baseline), 0, engine, sharp);
      CHECK(check.passed() == (error < 4.5e-5));
      CHECK(check.tolerance == doctest::Approx(4.5e-5));
    }
  }
}

TEST_CASE("of two errors the one that uses more of what it is allowed is reported, with what it was allowed") {
  std::vector<Check> all = {{"logprobs", 3e-5, 4e-5, "step 1", ""}};
  merge_checks(all, {{"logprobs", 2e-5, 1e-5, "step 2", "too far"}});
  CHECK(all[0].error == 2e-5);
  CHECK(all[0].tolerance == 1e-5);
  CHECK(all[0].where == "step 2");
  merge_checks(all, {{"logprobs", 5e-5, 4e-5, "step 3", "further, but closer to what is allowed"}});
  CHECK(all[0].where == "step 2");
  merge_checks(all, {{"logprobs", kNaN, 4e-5, "step 4", ""}});
  CHECK(all[0].where == "step 4");
  merge_checks(all, {{"logprobs", std::numeric_limits<double>::infinity(), 4e-5, "step 5", ""}});
  CHECK(all[0].where == "step 4");
}

TEST_CASE("one token's log-prob, before or after the step, is named by sample and place") {
  for (const bool after : {false, true}) {
    StepValues leg = make_step(kLayout);
    (after ? leg.ranks[6].logprobs_after : leg.ranks[6].logprobs)[6] += 1e-3;
    check_fails(leg, "logprobs",
                {"step 1, rank 6 (tp 0, pp 1, cp 1, dp 0), sample 2, response token 2: log-prob",
                 after ? " after the step is" : "log-prob is", "; error 0.001, allowed 1e-05"});
  }
}

TEST_CASE("planted.a response token that nobody computed, or two data-parallel ranks did, is found") {
  const placement::Layout layout{1, 1, 1, 2};
  StepValues leg = make_step(layout);
  leg.ranks[1].logprobs[3] = std::nan("");  // sample 1 is rank 1's
  check_fails(leg, "coverage", {"log-probs of response token 3 of the batch are computed by 0 data-parallel ranks"});
  leg = make_step(layout);
  leg.ranks[0].logprobs[3] = leg.ranks[1].logprobs[3];
  check_fails(leg, "coverage", {"log-probs of response token 3 of the batch are computed by 2 data-parallel ranks"});
}

TEST_CASE("planted.a part of a parameter that nobody or two ranks hold is found") {
  StepValues leg = make_step({4, 1, 1, 1});
  std::erase_if(leg.ranks[2].shards, [](const ShardValues& shard) { return shard.name == kUp; });
  check_fails(leg, "coverage",
              {"step 1: " + kUp + ": row 64 is held by 0 owners of replica dp 0 cp 0, expected one (first of 32"});
  leg = make_step({4, 1, 1, 1});
  shard_named(leg, 2, kUp) = shard_named(leg, 1, kUp);
  check_fails(leg, "coverage", {kUp + ": row 32 is held by 2 owners", "(first of 64"});
  leg = make_step({1, 2, 1, 1});
  leg.ranks[1].shards.pop_back();  // the final norm
  check_fails(leg, "coverage", {"model.norm.weight: row 0 is held by 0 owners"});
}

TEST_CASE("an engine's log-probs of the responses are held against those after the step") {
  const StepValues baseline = make_baseline();
  std::vector<std::vector<double>> engine;
  size_t token = 0;
  for (const int64_t response : test_responses()) {
    engine.push_back({-9.0, -8.0});  // of the prompt: nobody's business
    for (int64_t i = 0; i < response; ++i) engine.back().push_back(baseline.ranks[0].logprobs_after[token++]);
  }
  CHECK(compare_engine(baseline_record(baseline), 1, engine, options()).passed());
  CHECK(compare_engine(baseline_record(baseline), 1, engine, options()).error == 0.0);
  const auto failure = [&](auto change) {
    std::vector<std::vector<double>> changed = engine;
    change(changed);
    const Check check = compare_engine(baseline_record(baseline), 1, changed, options());
    CHECK_FALSE(check.error <= check.tolerance);
    return check.failure;
  };
  CHECK(contains(failure([](auto& e) { e[2][4] += 0.5; }),
                 "step 1, engine 1, sample 2, response token 2: log-prob after the push is"));
  CHECK(contains(failure([](auto& e) { e[0].back() = std::nan(""); }), "sample 0, response token 2"));
  CHECK(contains(failure([](auto& e) { e[1].clear(); }), "sample 1, response token 0"));
  CHECK(contains(failure([](auto& e) { e.pop_back(); }), "log-probs of 7 sequences, expected 8"));
  // What the weights before the step say is not enough.
  CHECK(failure([](auto& e) {
          for (auto& sample : e) {
            for (double& value : sample) value += 0.5;
          }
        }) != "");
}

TEST_CASE("checks of several steps keep the largest error and the first failure") {
  std::vector<Check> all = {{"loss", 1e-6, 1e-5, "step 1", ""}};
  merge_checks(all, {{"loss", 3e-5, 1e-5, "step 2", "first"}, {"weights", 0.0, 1e-4, "", ""}});
  merge_checks(all, {{"loss", 2e-5, 1e-5, "step 3", "second"}});
  REQUIRE(all.size() == 2);
  CHECK(all[0].error == 3e-5);
  CHECK(all[0].where == "step 2");
  CHECK(all[0].failure == "first");
}

TEST_CASE("a baseline that everything would agree with is none") {
  CHECK(baseline_problem(baseline_record(make_baseline())) == "");
  StepValues baseline = make_baseline();
  baseline.grad_norm = 0.0;
  CHECK(baseline_problem(baseline_record(baseline)) == "step 1: the gradient norm is 0");
  baseline = make_baseline();
  baseline.loss = kNaN;
  CHECK(baseline_problem(baseline_record(baseline)) == "step 1: the loss is nan");
  baseline = make_baseline();
  baseline.ranks[0].shards[0].gradient[7] = kNaN;
  CHECK(contains(baseline_problem(baseline_record(baseline)),
                 "model.embed_tokens.weight has values that are not finite"));
  baseline = make_baseline();
  baseline.ranks[0].logprobs[0] = kNaN;
  CHECK(contains(baseline_problem(baseline_record(baseline)), "log-probs that are not finite"));
}
