// The model that the stand-in serves: a Hugging Face folder, whole, in this process, however many workers the server
// claims. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "engine/executor.hpp"
#include "tensor/tensor.hpp"

namespace vime::stand_in {

struct ModelShape {
  std::string dtype;  // float32, bfloat16, ..., or auto: the config's, but bfloat16 for float32
  int64_t slots = 1;  // sequences with keys and values
  int64_t max_model_len = 0;
};

// A parameter under its checkpoint name and where its bytes lie.
struct Parameter {
  tensor::TensorInfo info;
  std::size_t offset = 0;
};

class Model {
 public:
  // Random weights until something is loaded. Error{refused} for a config that cannot be run.
  Model(const arch::ModelConfig& config, const ModelShape& shape, uint64_t seed);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const arch::ModelConfig& config() const;
  const std::vector<Parameter>& parameters() const;
  std::byte* weights();  // of all parameters
  std::size_t weight_bytes() const;

  // Logits after every row, [rows, vocab]; keys and values go into the rows' slots.
  std::vector<float> logits(const std::vector<engine::TokenRow>& rows);

  // The bytes of a tensor brought to another dtype.
  static std::vector<std::byte> convert(const tensor::TensorView& tensor, tensor::DType to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vime::stand_in
