// One token drawn from a row of logits: a pure function of the logits, the settings, the seed and the step. In double
// precision.
#pragma once

#include <cstdint>

#include "engine/executor.hpp"
#include "executor/start_workers.hpp"

namespace vime::executor {

// logits: [vocab]. Temperature 0 takes the lowest id among the largest logits. Otherwise, in this order: temperature,
// min_p (relative to the most probable token), top_k (ties with the k-th stay), top_p (over what is left; the smallest
// set of at least that mass, lower ids first among equals), then the inverse of the cumulative distribution in id order
// at uniform01(mix_key(seed, step)). Logits that are not finite are Error{check_failed}: weights that have diverged
// must not produce samples.
engine::Sampled draw(const float* logits, int64_t vocab, const engine::SampleSpec& spec, LogprobsMode mode);

// What a forced token is worth after that row: log softmax of the logits, without temperature and filters, its rank and
// the most probable token. Not finite logits: as above.
engine::Sampled look_up(const float* logits, int64_t vocab, int32_t token);

// The errors of both, for what draws elsewhere.
[[noreturn]] void refuse_logit(int64_t token, float logit);
[[noreturn]] void refuse_bans();

}  // namespace vime::executor
