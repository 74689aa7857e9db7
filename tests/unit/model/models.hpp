// Decoders with an arena of their own, and stored tensors, for the tests of this room.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint.hpp"
#include "model/decoder.hpp"
#include "model/logprobs.hpp"
#include "tensor/safetensors.hpp"

namespace vime::model {

struct OwnedDecoder {
  OwnedDecoder(const arch::ModelConfig& config, std::shared_ptr<Collectives> tp,
               tensor::DType dtype = tensor::DType::f32)
      : arena(arch::arena_layout(config, dtype, tp->rank(), tp->size()).total_bytes + 64),
        decoder(config, dtype, tp, aligned(arena.data())) {}

  static std::byte* aligned(std::byte* at) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(at) + 63) / 64 * 64);
  }

  std::vector<std::byte> arena;
  Decoder decoder;
};

inline fs::path models_dir() {
  return fs::path(VIME_TEST_DATA) / "models";
}

inline torch::Tensor stored(const tensor::SafetensorsFile& file, const std::string& name) {
  const tensor::TensorView& view = file.find(name);
  return torch::from_blob(const_cast<std::byte*>(view.data), view.info.shape, scalar_type(view.info.dtype)).clone();
}

// Positions 0, 1, ... of each sequence of a pack.
inline torch::Tensor positions_of(const std::vector<int64_t>& lengths) {
  std::vector<torch::Tensor> parts;
  for (const int64_t length : lengths) parts.push_back(torch::arange(length, torch::kInt64));
  return torch::cat(parts);
}

// Largest difference, as a share of the largest expected value. Infinite where only zeros are expected and something
// else is found.
inline double relative_error(const torch::Tensor& found, const torch::Tensor& expected) {
  const double difference = (found - expected).abs().max().item<double>();
  return difference == 0 ? 0 : difference / expected.abs().max().item<double>();
}

inline arch::ModelConfig small_config() {
  arch::ModelConfig config = arch::preset("tiny", 29);
  config.num_hidden_layers = 1;
  return config;
}

}  // namespace vime::model
