#include "executor/kv_cache.hpp"

#include <algorithm>
#include <cmath>

namespace vime::executor {
namespace {

// Eight partial sums let the compiler use vector registers without reordering what the source says.
constexpr int64_t kLanes = 8;

float dot(const float* a, const float* b, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void attend(const float* q, const float* keys, const float* values, int64_t length, int64_t head_dim, float* scores,
            float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  float largest = -INFINITY;
  for (int64_t position = 0; position < length; ++position) {
    scores[position] = dot(q, keys + position * head_dim, head_dim) * scale;
    largest = std::max(largest, scores[position]);
  }
  double total = 0;
  for (int64_t position = 0; position < length; ++position) {
    scores[position] = std::exp(scores[position] - largest);
    total += static_cast<double>(scores[position]);
  }
  std::fill(out, out + head_dim, 0.0f);
  for (int64_t position = 0; position < length; ++position) {
    const float weight = scores[position];
    const float* value = values + position * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) out[d] += weight * value[d];
  }
  const auto inverse = static_cast<float>(1.0 / total);
  for (int64_t d = 0; d < head_dim; ++d) out[d] *= inverse;
}

}  // namespace vime::executor
