#include "arch/shapes.hpp"

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::arch {
namespace {

struct Qwen3 {
  const char* name;
  int64_t hidden, intermediate, layers, heads;
  bool tied;
};
constexpr Qwen3 kQwen3[] = {{"qwen3-0.6b", 1024, 3072, 28, 16, true},
                            {"qwen3-4b", 2560, 9728, 36, 32, true},
                            {"qwen3-8b", 4096, 12288, 36, 32, false}};

ModelConfig config_of(const Qwen3& model) {
  ModelConfig config;
  config.vocab_size = 151936;
  config.hidden_size = model.hidden;
  config.intermediate_size = model.intermediate;
  config.num_hidden_layers = model.layers;
  config.num_attention_heads = model.heads;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.max_position_embeddings = 40960;
  config.rope_theta = 1e6;
  config.tie_word_embeddings = model.tied;
  config.qk_norm = true;
  config.dtype = "bfloat16";
  return config;
}

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Qwen3& model : kQwen3) names.emplace_back(model.name);
  return names;
}

ModelConfig shape(const std::string& name) {
  for (const Qwen3& model : kQwen3) {
    if (name == model.name) return config_of(model);
  }
  throw Error(ErrorKind::refused, "unknown shape \"" + name + "\"; expected one of " + join(shape_names(), ", "));
}

}  // namespace vime::arch
