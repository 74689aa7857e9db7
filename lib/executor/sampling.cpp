#include "executor/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace vime::executor {
namespace {

struct Candidate {
  int32_t id = 0;
  double logit = 0;   // divided by the temperature
  double weight = 0;  // exp(logit - largest)
};

void check_finite(const float* logits, int64_t vocab) {
  for (int64_t id = 0; id < vocab; ++id) {
    if (!std::isfinite(logits[id])) refuse_logit(id, logits[id]);
  }
}

// log sum exp over the ids that are not banned, each logit divided by the temperature.
double log_sum(const float* logits, int64_t vocab) {
  double largest = -INFINITY;
  for (int64_t id = 0; id < vocab; ++id) largest = std::max(largest, static_cast<double>(logits[id]));
  double total = 0;
  for (int64_t id = 0; id < vocab; ++id) total += std::exp(static_cast<double>(logits[id]) - largest);
  return largest + std::log(total);
}

std::vector<Candidate> candidates_of(const float* logits, int64_t vocab, const engine::SampleSpec& spec) {
  std::vector<bool> banned;
  if (!spec.banned.empty()) {
    banned.resize(static_cast<std::size_t>(vocab));
    for (const int32_t id : spec.banned) {
      if (id >= 0 && id < vocab) banned[static_cast<std::size_t>(id)] = true;
    }
  }
  const double temperature = spec.temperature > 0 ? static_cast<double>(spec.temperature) : 1.0;
  std::vector<Candidate> kept;
  kept.reserve(static_cast<std::size_t>(vocab));
  double largest = -INFINITY;
  for (int64_t id = 0; id < vocab; ++id) {
    if (!banned.empty() && banned[static_cast<std::size_t>(id)]) continue;
    kept.push_back({static_cast<int32_t>(id), static_cast<double>(logits[id]) / temperature, 0});
    largest = std::max(largest, kept.back().logit);
  }
  if (kept.empty()) refuse_bans();
  for (Candidate& candidate : kept) candidate.weight = std::exp(candidate.logit - largest);
  return kept;
}

void keep_top_k(std::vector<Candidate>& kept, int32_t top_k) {
  if (top_k < 1 || static_cast<std::size_t>(top_k) >= kept.size()) return;
  std::vector<double> logits;
  logits.reserve(kept.size());
  for (const Candidate& candidate : kept) logits.push_back(candidate.logit);
  std::nth_element(logits.begin(), logits.begin() + (top_k - 1), logits.end(), std::greater<>());
  const double least = logits[static_cast<std::size_t>(top_k - 1)];
  std::erase_if(kept, [least](const Candidate& candidate) { return candidate.logit < least; });
}

void keep_top_p(std::vector<Candidate>& kept, double top_p) {
  if (top_p >= 1.0) return;
  double total = 0;
  for (const Candidate& candidate : kept) total += candidate.weight;
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  double mass = 0;
  std::size_t count = 0;
  while (count < kept.size() && mass < top_p * total) mass += kept[count++].weight;
  kept.resize(std::max<std::size_t>(count, 1));
  std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

const Candidate& pick(const std::vector<Candidate>& kept, double total, const engine::SampleSpec& spec) {
  if (spec.temperature <= 0) {
    const auto larger = [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; };
    return *std::max_element(kept.begin(), kept.end(), larger);  // the first of equals
  }
  const double target = uniform01(mix_key(spec.seed, static_cast<uint64_t>(spec.step))) * total;
  double mass = 0;
  const Candidate* last = &kept.front();
  for (const Candidate& candidate : kept) {
    if (candidate.weight <= 0) continue;
    last = &candidate;
    mass += candidate.weight;
    if (mass > target) break;
  }
  return *last;
}

}  // namespace

void refuse_logit(int64_t token, float logit) {
  throw Error(ErrorKind::check_failed,
              "the logit of token " + std::to_string(token) + " is not a finite number (" + std::to_string(logit) + ")",
              "the weights may have diverged");
}

void refuse_bans() {
  throw Error(ErrorKind::refused, "every token of the vocabulary is banned");
}

engine::Sampled draw(const float* logits, int64_t vocab, const engine::SampleSpec& spec, LogprobsMode mode) {
  check_finite(logits, vocab);
  std::vector<Candidate> kept = candidates_of(logits, vocab, spec);
  if (spec.temperature > 0) {
    if (spec.min_p > 0) {
      // The most probable token has weight 1.
      std::erase_if(kept,
                    [&](const Candidate& candidate) { return candidate.weight < static_cast<double>(spec.min_p); });
    }
    keep_top_k(kept, spec.top_k);
    keep_top_p(kept, static_cast<double>(spec.top_p));
  }
  double total = 0;
  double largest = -INFINITY;
  for (const Candidate& candidate : kept) {
    total += candidate.weight;
    largest = std::max(largest, candidate.logit);
  }
  const Candidate& drawn = pick(kept, total, spec);
  const double logprob = mode == LogprobsMode::raw ? static_cast<double>(logits[drawn.id]) - log_sum(logits, vocab)
                                                   : drawn.logit - largest - std::log(total);
  return {drawn.id, static_cast<float>(logprob)};
}

engine::Sampled look_up(const float* logits, int64_t vocab, int32_t token) {
  VIME_CHECK(token >= 0 && token < vocab, "token " + std::to_string(token) + " is not in the vocabulary");
  check_finite(logits, vocab);
  const double total = log_sum(logits, vocab);
  const float* const top = std::max_element(logits, logits + vocab);  // the first of equals
  const auto as_probable = [&](float logit) { return logit >= logits[token]; };
  engine::Sampled found;
  found.token = token;
  found.logprob = static_cast<float>(static_cast<double>(logits[token]) - total);
  found.rank = static_cast<int32_t>(std::count_if(logits, logits + vocab, as_probable));
  found.top_token = static_cast<int32_t>(top - logits);
  found.top_logprob = static_cast<float>(static_cast<double>(*top) - total);
  return found;
}

}  // namespace vime::executor
