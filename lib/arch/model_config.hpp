// What a model is, without its weights: Hugging Face config.json in and out, presets, and no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::arch {

// Llama 3's frequency scaling, or linear scaling.
struct RopeScaling {
  std::string type;  // "llama3" or "linear"
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;

  bool operator==(const RopeScaling&) const = default;
};

// Llama, Qwen2 and Qwen3 dense decoders: RMSNorm, RoPE, grouped-query attention, SwiGLU.
struct ModelConfig {
  std::string architecture = "Qwen3ForCausalLM";  // LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM
  std::string model_type = "qwen3";
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     // biases of q, k and v (Qwen2; Llama with attention_bias)
  bool output_bias = false;  // bias of o (Llama with attention_bias)
  bool mlp_bias = false;     // biases of gate, up and down (Llama with mlp_bias)
  bool qk_norm = false;      // RMSNorm of every q and k head (Qwen3)
  double initializer_range = 0.02;
  std::string dtype = "float32";  // of the checkpoint's weights: float32, bfloat16 or float16
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;

  bool operator==(const ModelConfig&) const = default;
};

// From the text of a config.json; `where` names it in errors. Both spellings of the rope and dtype keys are read. A
// config that vime cannot run (unknown architecture, sliding window in use, other activation, ...) is Error{refused}
// naming the field, found and supported.
ModelConfig parse_config(const std::string& text, const std::string& where);
ModelConfig read_config(
    const fs::path& model_dir);  // <dir>/config.json, and eos ids of generation_config.json where it has them

// The first setting in which `found` computes otherwise than `wanted`: "\"hidden_size\" is 64, not 128"; "" when none
// does. Token ids and how weights begin are no part of it.
std::string first_difference(const ModelConfig& wanted, const ModelConfig& found);

// config.json as transformers reads it.
Json config_json(const ModelConfig& config, const std::string& dtype);

// Named small models for runs from random weights: "tiny" (2 layers, about 100 thousand parameters), "tiny-parallel"
// (5 layers, made to be cut in every way) "small" (6 layers, 20 million parameters), and the shapes of shapes.hpp with
// this vocabulary. Error{refused} lists the names.
ModelConfig preset(const std::string& name, int64_t vocab_size);
std::vector<std::string> preset_names();

}  // namespace vime::arch
