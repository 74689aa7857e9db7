#include "bench/model_lists.hpp"

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::bench {
namespace {

arch::ModelConfig qwen3(int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads, int64_t kv_heads) {
  arch::ModelConfig config;
  config.vocab_size = 151936;
  config.hidden_size = hidden;
  config.intermediate_size = intermediate;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.head_dim = 128;
  config.qk_norm = true;
  return config;
}

ModelList dense(const std::string& name, arch::ModelConfig config, bool tied_embeddings) {
  config.tie_word_embeddings = tied_embeddings;
  return {name, arch::parameters(config, tensor::DType::bf16), tied_embeddings};
}

// Every layer's MLP is a router and its experts.
ModelList experts(const std::string& name, const arch::ModelConfig& config, int64_t count, int64_t intermediate) {
  ModelList list{name, {}, false};
  for (arch::Parameter& parameter : arch::parameters(config, tensor::DType::bf16)) {
    const std::string& tensor = parameter.full.name;
    const std::size_t mlp = tensor.find(".mlp.");
    if (mlp == std::string::npos) {
      list.parameters.push_back(std::move(parameter));
      continue;
    }
    if (tensor.find("gate_proj") == std::string::npos) continue;  // once a layer
    const std::string prefix = tensor.substr(0, mlp) + ".mlp.";
    const auto add = [&](const std::string& part, tensor::Shape shape, arch::Cut cut) {
      arch::Parameter added = parameter;
      added.full = {prefix + part + ".weight", tensor::DType::bf16, std::move(shape)};
      added.cut = cut;
      list.parameters.push_back(std::move(added));
    };
    add("gate", {count, config.hidden_size}, arch::Cut::replicated);
    for (int64_t expert = 0; expert < count; ++expert) {
      const std::string own = "experts." + std::to_string(expert) + ".";
      add(own + "gate_proj", {intermediate, config.hidden_size}, arch::Cut::rows);
      add(own + "up_proj", {intermediate, config.hidden_size}, arch::Cut::rows);
      add(own + "down_proj", {config.hidden_size, intermediate}, arch::Cut::columns);
    }
  }
  return list;
}

}  // namespace

std::vector<std::string> model_names() {
  return {"qwen3-0.6b", "qwen3-8b", "qwen3-30b-a3b"};
}

ModelList model_list(const std::string& name) {
  if (name == "tiny") return dense(name, qwen3(2, 256, 512, 4, 2), true);  // for tests
  if (name == "qwen3-0.6b") return dense(name, qwen3(28, 1024, 3072, 16, 8), true);
  if (name == "qwen3-8b") return dense(name, qwen3(36, 4096, 12288, 32, 8), false);
  if (name == "qwen3-30b-a3b") return experts(name, qwen3(48, 2048, 6144, 32, 4), 128, 768);
  throw Error(ErrorKind::refused, "no list of a model \"" + name + "\"; there are " + join(model_names(), ", "));
}

arch::ArenaLayout layout_of(const ModelList& model, int tp_rank, int tp_size) {
  constexpr uint64_t kAlignment = 64;
  arch::ArenaLayout layout;
  for (const arch::Parameter& parameter : model.parameters) {
    arch::ArenaEntry entry;
    entry.parameter = parameter;
    entry.shard = arch::shard_of(parameter, tp_rank, tp_size);
    entry.offset = layout.total_bytes;
    entry.bytes =
        static_cast<uint64_t>(tensor::element_count(entry.shard.shape)) * tensor::element_bytes(parameter.full.dtype);
    layout.total_bytes = (entry.offset + entry.bytes + kAlignment - 1) / kAlignment * kAlignment;
    layout.entries.push_back(std::move(entry));
  }
  return layout;
}

std::vector<tensor::TensorInfo> tensors_of(const ModelList& model) {
  std::vector<tensor::TensorInfo> tensors;
  for (const arch::Parameter& parameter : model.parameters) tensors.push_back(parameter.full);
  return tensors;
}

uint64_t bytes_of(const ModelList& model) {
  uint64_t bytes = 0;
  for (const arch::Parameter& parameter : model.parameters) bytes += parameter.full.bytes();
  return bytes;
}

}  // namespace vime::bench
