#include "bench/model_lists.hpp"

#include "arch/shapes.hpp"
#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::bench {
namespace {

ModelList dense(const std::string& name, const arch::ModelConfig& config) {
  return {name, arch::parameters(config, tensor::DType::bf16), config.tie_word_embeddings};
}

// Qwen3-30B-A3B but for its experts.
arch::ModelConfig thirty_billion() {
  arch::ModelConfig config = arch::shape("qwen3-8b");
  config.hidden_size = 2048;
  config.num_hidden_layers = 48;
  config.num_key_value_heads = 4;
  return config;
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
  if (name == "tiny") return dense(name, arch::preset(name, 512));      // for tests
  if (name == "small") return dense(name, arch::preset(name, 151936));  // likewise
  if (name == "qwen3-0.6b" || name == "qwen3-8b") return dense(name, arch::shape(name));
  if (name == "qwen3-30b-a3b") return experts(name, thirty_billion(), 128, 768);
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

std::vector<std::vector<arch::ArenaLayout>> rank_layouts(const ModelList& model, int tp_size) {
  std::vector<std::vector<arch::ArenaLayout>> layouts(1);
  for (int rank = 0; rank < tp_size; ++rank) layouts[0].push_back(layout_of(model, rank, tp_size));
  return layouts;
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
