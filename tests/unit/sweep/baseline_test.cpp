// What bfloat16 costs is measured: one process in it against the same one in float32.
#include "sweep/baseline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "sweep/compare.hpp"
#include "unit/sweep/records.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

constexpr double kLr = 0.5;

// Every gradient element off by a share of its parameter's largest, the first of all by the whole of it; the same for
// log-probs and weights, as absolute numbers. `draw` chooses the signs.
StepValues with_noise(double gradient, double logprob, double weight, uint64_t draw) {
  StepValues record = make_baseline();
  for (ShardValues& shard : record.ranks[0].shards) {
    double scale = 0.0;
    for (const float value : shard.gradient) scale = std::max(scale, std::abs(double{value}));
    for (size_t i = 0; i < shard.gradient.size(); ++i) {
      const double share = i == 0 ? 1.0 : 2.0 * uniform01(mix_key(draw, i)) - 1.0;
      shard.gradient[i] += static_cast<float>(share * gradient * scale);
      shard.weight[i] += static_cast<float>(share * weight);
    }
  }
  for (size_t i = 0; i < record.ranks[0].logprobs.size(); ++i) {
    record.ranks[0].logprobs[i] += i % 2 == draw % 2 ? logprob : -logprob;
  }
  return record;
}

// The float32 step has been held against the other's file.
Noise noise_of(const StepValues& rounded, const StepValues& exact) {
  return noise_between(baseline_record(rounded), record_of(exact, &rounded, kBfloat16Spacing), kLr);
}

Baseline baseline_of(const StepValues& rounded) {
  return bfloat16_baseline({baseline_record(rounded)}, {record_of(make_baseline(), &rounded, kBfloat16Spacing)}, kLr);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("noise is the largest error of each kind, and of the whole gradient relative to its norm") {
  const Noise noise = noise_of(with_noise(0.02, 0.01, 0.001, 1), make_baseline());
  CHECK(noise.gradient == doctest::Approx(0.02).epsilon(1e-3));
  CHECK(noise.logprob == doctest::Approx(0.01));
  CHECK(noise.weight <= 0.001 / kLr);
  CHECK(noise.weight == doctest::Approx(0.001 / kLr).epsilon(0.05));  // of small weights, whose neighbours are near
  double difference = 0.0, size = 0.0;
  const StepValues exact = make_baseline(), rounded = with_noise(0.02, 0.01, 0.001, 1);
  for (size_t p = 0; p < exact.ranks[0].shards.size(); ++p) {
    const std::vector<float>& a = exact.ranks[0].shards[p].gradient;
    const std::vector<float>& b = rounded.ranks[0].shards[p].gradient;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(static_cast<double>(b[i]) - a[i], 2);
      size += std::pow(static_cast<double>(a[i]), 2);
    }
  }
  CHECK(noise.gradients == doctest::Approx(std::sqrt(difference / size)));
  CHECK(noise_of(exact, exact).gradients == 0.0);
}

TEST_CASE("two draws of the same noise pass against each other, and a gradient of half the size does not") {
  const StepValues rounded = with_noise(0.05, 0.02, 0.001, 1);
  const Baseline baseline = baseline_of(rounded);
  CompareOptions options;
  options.tolerances = baseline.tolerances.at(0);
  options.lr = kLr;
  options.response_lengths = test_responses();
  for (const Check& check : compare_values(rounded, with_noise(0.06, 0.02, 0.001, 2), options, kBfloat16Spacing)) {
    CAPTURE(check.failure);
    CHECK(check.passed());
  }
  for (size_t parameter : {size_t{0}, size_t{5}}) {
    StepValues wrong = with_noise(0.05, 0.02, 0.001, 2);
    for (float& value : wrong.ranks[0].shards[parameter].gradient) value *= 0.5F;
    const std::vector<Check> checks = compare_values(rounded, wrong, options, kBfloat16Spacing);
    const auto gradients =
        std::find_if(checks.begin(), checks.end(), [](const Check& check) { return check.name == "gradients"; });
    CHECK(contains(gradients->failure, wrong.ranks[0].shards[parameter].name));
  }
}

TEST_CASE("weights that were rounded to neighbours do not differ, and those further apart by what is beyond") {
  CompareOptions options;
  options.lr = kLr;
  options.response_lengths = test_responses();
  double spacing = kBfloat16Spacing;
  StepValues one = make_baseline(), other = make_baseline();
  float& a = one.ranks[0].shards[3].weight[5];
  float& b = other.ranks[0].shards[3].weight[5];
  const auto error = [&](float x, float y) {
    a = x;
    b = y;
    const std::vector<Check> checks = compare_values(one, other, options, spacing);
    return std::find_if(checks.begin(), checks.end(), [](const Check& c) { return c.name == "weights"; })->error;
  };
  CHECK(error(1.0F, 1.0F + 0x1p-7F) == 0.0);
  CHECK(error(1.0F, 1.0F - 0x1p-8F) == 0.0);
  CHECK(error(-0.1416F, -0.1416F - 0x1p-10F) == 0.0);
  CHECK(error(1.0F, 1.0F + 0x1p-6F) == doctest::Approx(0x1p-7 / kLr));
  CHECK(error(0.5F, -0.5F) == doctest::Approx((1.0 - 0x1p-8) / kLr));
  CHECK(error(0.0F, 0.0F) == 0.0);
  CHECK_FALSE(error(1.0F, std::numeric_limits<float>::quiet_NaN()) <= 1e9);
  spacing = 0.0;
  CHECK(error(1.0F, 1.0F + 0x1p-7F) == doctest::Approx(0x1p-7 / kLr));
}

TEST_CASE("what bfloat16 is allowed is three times the noise, and never less than float32 is") {
  const Tolerances exact = float32_tolerances(10.0);
  const Tolerances allowed = bfloat16_tolerances({0.01, 0.05, 0.02, 0.1}, exact);
  CHECK(allowed.grad_norm == doctest::Approx(0.03));
  CHECK(allowed.gradient == doctest::Approx(0.15));
  CHECK(allowed.logprob == doctest::Approx(0.06));
  CHECK(allowed.loss == doctest::Approx(0.06));
  CHECK(allowed.weight == doctest::Approx(0.3));
  const Tolerances least = bfloat16_tolerances({}, exact);
  CHECK(least.gradient == exact.gradient);
  CHECK(least.grad_norm == exact.grad_norm);
  CHECK(least.logprob == exact.logprob);
  CHECK(least.weight == exact.weight);
}

TEST_CASE("a baseline whose noise would hide a fault is none") {
  for (const auto& [gradient, logprob, what] :
       {std::tuple{0.2, 0.01, "gradients"}, std::tuple{0.01, 0.2, "log-probs"}}) {
    try {
      baseline_of(with_noise(gradient, logprob, 0.0, 1));
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::check_failed);
      CHECK(contains(error.message(), std::string(what) + " in bfloat16 are too far from those in float32"));
    }
  }
}

// Else the updates that bfloat16 loses would count as noise: too much of it to tell anything by, with a large model.
TEST_CASE("the process beside a baseline in bfloat16 rounds its weights as that does, and is held against its files") {
  const std::vector<rollout::StepProbe> probes = probes_beside({"/run/step_1", "/run/step_2"});
  REQUIRE(probes.size() == 2);
  CHECK(probes[1].against == "/run/step_2");
  for (const rollout::StepProbe& probe : probes) {
    CHECK(probe.write.empty());
    CHECK(probe.round_weights);
    CHECK(probe.weight_spacing == kBfloat16Spacing);
  }
}
