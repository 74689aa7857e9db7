#include <torch/utils.h>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"
#include "model/decoder.hpp"

namespace vime::model {
namespace {

uint64_t parameter_key(uint64_t seed, const std::string& name) {
  uint64_t key = seed;
  for (const char c : name) key = mix_key(key, static_cast<unsigned char>(c));
  return key;
}

// Standard normal by Box and Muller (1958): elements 2i and 2i + 1 are the two results of one pair of uniform numbers,
// each computed on its own, so that any shard may begin anywhere. Scalar arithmetic: the same bits in every layout.
float normal_at(uint64_t key, uint64_t index, double deviation) {
  const uint64_t pair = index & ~uint64_t{1};
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform01(mix_key(key, pair))));
  const double angle = 2.0 * M_PI * uniform01(mix_key(key, pair + 1));
  return static_cast<float>(deviation * radius * ((index & 1) == 0 ? std::cos(angle) : std::sin(angle)));
}

torch::Tensor normal_shard(const arch::ArenaEntry& entry, uint64_t key, double deviation) {
  const arch::Shard& shard = entry.shard;
  const int64_t full_columns = entry.parameter.full.shape[1];
  const int64_t rows = shard.shape[0];
  const int64_t columns = shard.shape[1];
  const int64_t first_row = shard.dim == 0 ? shard.begin : 0;
  const int64_t first_column = shard.dim == 1 ? shard.begin : 0;
  torch::Tensor values = torch::empty({rows, columns}, torch::kFloat32);
  float* out = values.data_ptr<float>();
  at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto base = static_cast<uint64_t>((first_row + r) * full_columns + first_column);
      for (int64_t c = 0; c < columns; ++c) {
        out[r * columns + c] = normal_at(key, base + static_cast<uint64_t>(c), deviation);
      }
    }
  });
  return values;
}

}  // namespace

void init_weights(Decoder& decoder, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
    const arch::ArenaEntry& entry = decoder.layout().entries[i];
    torch::Tensor& value = decoder.parameters()[i].value;
    const std::string& name = entry.parameter.full.name;
    if (entry.parameter.full.shape.size() == 2) {
      value.copy_(normal_shard(entry, parameter_key(seed, name), decoder.config().initializer_range));
    } else if (name.ends_with(".bias")) {
      value.zero_();
    } else {
      value.fill_(1.0);
    }
  }
}

}  // namespace vime::model
