#include "arch/model_config.hpp"

#include <algorithm>

#include "arch/shapes.hpp"
#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::arch {
namespace {

Json token_ids_json(const std::vector<int64_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids.front();
  return ids;
}

Json optional_json(const std::optional<int64_t>& id) {
  return id ? Json(*id) : Json(nullptr);
}

Json scaling_json(const RopeScaling& scaling) {
  Json json = {{"rope_type", scaling.type}, {"factor", scaling.factor}};
  if (scaling.type == "llama3") {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  }
  return json;
}

// Sized to learn sorting four digits from reward alone. Eight small heads learn it faster than four with a wider MLP;
// weights of 0.1 (1 / sqrt(hidden) is 0.125) let the layers matter from the start; an untied head does not prefer to
// repeat its input.
ModelConfig tiny() {
  ModelConfig config;
  config.hidden_size = 64;
  config.intermediate_size = 128;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 4;
  config.head_dim = 16;
  config.max_position_embeddings = 256;
  config.qk_norm = true;
  config.initializer_range = 0.1;
  return config;
}

// Sized to be cut in every way that the parallel sweep asks for: eight heads for TP 8, whose ranks then share the four
// key/value heads; five layers, so that pipeline stages are uneven; tied embeddings, which the first and the last stage
// both hold.
ModelConfig tiny_parallel() {
  ModelConfig config = tiny();
  config.num_hidden_layers = 5;
  config.head_dim = 8;
  config.max_position_embeddings = 128;
  config.tie_word_embeddings = true;
  config.initializer_range = 0.05;  // logits of a few units: what float32 rounds off them is far below 1e-5
  return config;
}

// As tiny, with heads as wide as the narrowest that vLLM's attention on CPUs takes.
ModelConfig tiny_vllm() {
  ModelConfig config = tiny();
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 32;
  return config;
}

// Twenty million parameters, for a first run on a GPU.
ModelConfig small() {
  ModelConfig config = tiny();
  config.hidden_size = 512;
  config.intermediate_size = 1536;
  config.num_hidden_layers = 6;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 8;
  config.head_dim = 64;
  config.initializer_range = 0.04;  // 1 / sqrt(hidden)
  return config;
}

struct Preset {
  const char* name;
  ModelConfig (*make)();
};
constexpr Preset kPresets[] = {
    {"tiny", tiny}, {"tiny-parallel", tiny_parallel}, {"tiny-vllm", tiny_vllm}, {"small", small}};

}  // namespace

Json config_json(const ModelConfig& config, const std::string& dtype) {
  Json json;
  json["architectures"] = {config.architecture};
  json["model_type"] = config.model_type;
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.rms_norm_eps;
  // The older spelling of the rope and dtype keys: transformers 4 knows no other, transformers 5 and vLLM take both.
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = config.rope_scaling ? scaling_json(*config.rope_scaling) : Json(nullptr);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (config.model_type != "qwen2") json["attention_bias"] = config.output_bias;
  if (config.model_type == "llama") json["mlp_bias"] = config.mlp_bias;
  if (config.model_type != "llama") json["use_sliding_window"] = false;
  json["initializer_range"] = config.initializer_range;
  json["bos_token_id"] = optional_json(config.bos_token_id);
  json["eos_token_id"] = token_ids_json(config.eos_token_ids);
  json["pad_token_id"] = optional_json(config.pad_token_id);
  json["torch_dtype"] = dtype;
  return json;
}

ModelConfig preset(const std::string& name, int64_t vocab_size) {
  if (vocab_size <= 0) {
    throw Error(ErrorKind::refused, "preset \"" + name + "\": expected a vocabulary of at least one token, found " +
                                        std::to_string(vocab_size));
  }
  for (const Preset& known : kPresets) {
    if (name != known.name) continue;
    ModelConfig config = known.make();
    config.vocab_size = vocab_size;
    return config;
  }
  const std::vector<std::string> shapes = shape_names();
  if (std::find(shapes.begin(), shapes.end(), name) != shapes.end()) {
    ModelConfig config = shape(name);
    config.vocab_size = vocab_size;
    return config;
  }
  throw Error(ErrorKind::refused,
              "unknown model preset \"" + name + "\"; expected one of " + join(preset_names(), ", "));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& known : kPresets) names.emplace_back(known.name);
  for (const std::string& known : shape_names()) names.push_back(known);
  return names;
}

std::string first_difference(const ModelConfig& wanted, const ModelConfig& found) {
  Json wants = config_json(wanted, "float32");
  Json has = config_json(found, "float32");
  for (const char* aside : {"eos_token_id", "bos_token_id", "pad_token_id", "initializer_range"}) {
    wants.erase(aside);
    has.erase(aside);
  }
  for (const Json* const names : {&wants, &has}) {
    for (const auto& [name, unused] : names->items()) {
      const Json want = wants.value(name, Json()), have = has.value(name, Json());
      if (have != want) return "\"" + name + "\" is " + have.dump() + ", not " + want.dump();
    }
  }
  return "";
}

}  // namespace vime::arch
