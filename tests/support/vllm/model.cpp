#include "support/vllm/model.hpp"

#include <torch/types.h>
#include <torch/utils.h>

#include <cstring>
#include <utility>

#include "arch/parameters.hpp"
#include "executor/host_forward.hpp"
#include "executor/weight_memory.hpp"
#include "model/collectives.hpp"
#include "model/decoder.hpp"

namespace vime::stand_in {
namespace {

constexpr int64_t kRowsPerBlock = 64;

tensor::DType dtype_of(const std::string& name, const arch::ModelConfig& config) {
  // Without being told otherwise vLLM serves float32 checkpoints in half precision.
  if (name == "auto") return config.dtype == "float32" ? tensor::DType::bf16 : tensor::parse_dtype_name(config.dtype);
  if (name == "half") return tensor::DType::f16;
  if (name == "float") return tensor::DType::f32;
  return tensor::parse_dtype_name(name);
}

}  // namespace

struct Model::State {
  State(const arch::ModelConfig& config, const ModelShape& shape, tensor::DType dtype)
      : bytes(arch::arena_layout(config, dtype, 0, 1).total_bytes),
        arena(executor::make_host_weights(bytes)),
        decoder(config, dtype, model::single_rank(), arena->data()),
        forward(decoder, 1, {shape.slots, shape.max_model_len, kRowsPerBlock, executor::LogprobsMode::processed}) {}

  std::size_t bytes;
  std::unique_ptr<executor::WeightMemory> arena;
  model::Decoder decoder;
  executor::HostForward forward;
  std::vector<Parameter> parameters;
};

Model::Model(const arch::ModelConfig& config, const ModelShape& shape, uint64_t seed)
    : state_(std::make_unique<State>(config, shape, dtype_of(shape.dtype, config))) {
  torch::set_num_threads(1);
  model::init_weights(state_->decoder, seed);
  for (const arch::ArenaEntry& entry : state_->decoder.layout().entries)
    state_->parameters.push_back({entry.parameter.full, static_cast<std::size_t>(entry.offset)});
}

Model::~Model() = default;

const arch::ModelConfig& Model::config() const {
  return state_->decoder.config();
}

const std::vector<Parameter>& Model::parameters() const {
  return state_->parameters;
}

std::byte* Model::weights() {
  return state_->arena->data();
}

std::size_t Model::weight_bytes() const {
  return state_->bytes;
}

std::vector<float> Model::logits(const std::vector<engine::TokenRow>& rows) {
  const torch::Tensor logits = state_->forward.logits(rows).contiguous();
  const float* data = logits.data_ptr<float>();
  return {data, data + logits.numel()};
}

std::vector<std::byte> Model::convert(const tensor::TensorView& tensor, tensor::DType to) {
  const tensor::TensorInfo wanted{tensor.info.name, to, tensor.info.shape};
  std::vector<std::byte> bytes(wanted.bytes());
  if (to == tensor.info.dtype) {
    std::memcpy(bytes.data(), tensor.data, bytes.size());
    return bytes;
  }
  const torch::Tensor given =
      torch::from_blob(const_cast<std::byte*>(tensor.data), tensor.info.shape, model::scalar_type(tensor.info.dtype));
  const torch::Tensor converted = given.to(model::scalar_type(to)).contiguous();
  std::memcpy(bytes.data(), converted.data_ptr(), bytes.size());
  return bytes;
}

}  // namespace vime::stand_in
