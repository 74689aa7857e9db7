// config.json of the transformers library (versions 4 and 5) -> ModelConfig. Absent keys take transformers' defaults;
// whatever vime cannot run is refused by name rather than run differently.
#include <algorithm>
#include <cmath>

#include "arch/model_config.hpp"
#include "base/error.hpp"
#include "base/strings.hpp"
#include "tensor/tensor.hpp"

namespace vime::arch {
namespace {

struct Family {
  const char* architecture;
  const char* model_type;
};
constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama"}, {"Qwen2ForCausalLM", "qwen2"}, {"Qwen3ForCausalLM", "qwen3"}};
constexpr int64_t kLargestSize = int64_t{1} << 40;

// Typed members of one JSON object. null counts as absent, as in transformers.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& expected, const std::string& found) const {
    throw Error(ErrorKind::refused, where_ + ": \"" + key + "\": expected " + expected + ", found " + found);
  }
  const Json* find(const std::string& key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  int64_t positive(const std::string& key, std::optional<int64_t> absent = std::nullopt) const {
    const Json* value = find(key);
    if (value == nullptr) {
      if (absent) return *absent;
      throw Error(ErrorKind::refused, where_ + ": \"" + key + "\" is missing");
    }
    if (!value->is_number_unsigned() || value->get<uint64_t>() == 0 ||
        value->get<uint64_t>() > static_cast<uint64_t>(kLargestSize)) {
      refuse(key, "a positive integer", value->dump());
    }
    return value->get<int64_t>();
  }
  double number(const std::string& key, std::optional<double> absent) const {
    const Json* value = find(key);
    if (value == nullptr) {
      if (absent) return *absent;
      throw Error(ErrorKind::refused, where_ + ": \"" + key + "\" is missing");
    }
    if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "a number", value->dump());
    return value->get<double>();
  }
  double positive_number(const std::string& key, std::optional<double> absent) const {
    const double value = number(key, absent);
    if (value <= 0) refuse(key, "a number above 0", find(key)->dump());
    return value;
  }
  bool flag(const std::string& key, bool absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) refuse(key, "true or false", value->dump());
    return value->get<bool>();
  }
  std::string text(const std::string& key, const std::string& absent) const {
    const Json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) refuse(key, "a string", value->dump());
    return value->get<std::string>();
  }
  std::vector<int64_t> token_ids(const std::string& key) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    std::vector<int64_t> ids;
    for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
      if (!id.is_number_integer()) refuse(key, "a token id or a list of them", value->dump());
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }
  std::optional<int64_t> token_id(const std::string& key) const {
    const std::vector<int64_t> ids = token_ids(key);
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  }
  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
};

Json parse_object(const std::string& text, const std::string& where) {
  Json object = parse_json(text, where, ErrorKind::refused);
  if (!object.is_object()) throw Error(ErrorKind::refused, where + ": expected a JSON object");
  return object;
}

void parse_family(const Fields& fields, ModelConfig& config) {
  const std::string model_type = fields.text("model_type", "");
  std::string architecture;
  if (const Json* list = fields.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      fields.refuse("architectures", "a list of one name", list->dump());
    }
    architecture = list->front().get<std::string>();
  }
  std::vector<std::string> supported;
  for (const Family& family : kFamilies) {
    supported.emplace_back(family.architecture);
    if (architecture.empty() ? model_type == family.model_type : architecture == family.architecture) {
      if (!model_type.empty() && model_type != family.model_type) {
        fields.refuse("model_type", "\"" + std::string(family.model_type) + "\" beside " + family.architecture,
                      "\"" + model_type + "\"");
      }
      config.architecture = family.architecture;
      config.model_type = family.model_type;
      return;
    }
  }
  fields.refuse("architectures", "one of " + join(supported, ", "),
                architecture.empty() ? "none" : "\"" + architecture + "\"");
}

void refuse_unsupported(const Fields& fields) {
  const auto only = [&](const std::string& key, const std::string& absent, const std::string& supported) {
    const std::string value = fields.text(key, absent);
    if (value != supported) fields.refuse(key, "\"" + supported + "\", the only one supported", "\"" + value + "\"");
  };
  only("hidden_act", "silu", "silu");
  if (fields.flag("use_sliding_window", false) && fields.find("sliding_window") != nullptr) {
    fields.refuse("use_sliding_window", "false: sliding-window attention is not supported", "true");
  }
  if (const Json* types = fields.find("layer_types")) {
    if (!types->is_array()) fields.refuse("layer_types", "a list", types->dump());
    for (const Json& type : *types) {
      if (type != "full_attention") fields.refuse("layer_types", "\"full_attention\" for every layer", type.dump());
    }
  }
  if (const Json* quantization = fields.find("quantization_config")) {
    fields.refuse("quantization_config", "none: quantised weights are not supported", quantization->dump());
  }
}

std::optional<RopeScaling> parse_scaling(const Fields& rope, const std::string& type_key) {
  RopeScaling scaling;
  scaling.type = rope.text(type_key, "default");
  if (scaling.type == "default") return std::nullopt;
  if (scaling.type != "linear" && scaling.type != "llama3") {
    rope.refuse(type_key, "\"default\", \"linear\" or \"llama3\"", "\"" + scaling.type + "\"");
  }
  scaling.factor = rope.positive_number("factor", std::nullopt);
  if (scaling.type == "llama3") {
    scaling.low_freq_factor = rope.positive_number("low_freq_factor", std::nullopt);
    scaling.high_freq_factor = rope.positive_number("high_freq_factor", std::nullopt);
    scaling.original_max_position_embeddings = rope.positive("original_max_position_embeddings");
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      rope.refuse("high_freq_factor", "more than low_freq_factor, " + format_number(scaling.low_freq_factor),
                  format_number(scaling.high_freq_factor));
    }
  }
  return scaling;
}

// transformers 5 writes rope_parameters {rope_type, rope_theta, ...}; before it were rope_theta and rope_scaling {type
// or rope_type, ...}.
void parse_rope(const Fields& fields, ModelConfig& config) {
  if (fields.number("partial_rotary_factor", 1.0) != 1.0) {
    fields.refuse("partial_rotary_factor", "1", fields.find("partial_rotary_factor")->dump());
  }
  config.rope_theta = fields.positive_number("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* value = fields.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) fields.refuse(key, "an object", value->dump());
    const Fields rope(*value, fields.where() + ": \"" + key + "\"");
    config.rope_theta = rope.positive_number("rope_theta", config.rope_theta);
    if (rope.number("partial_rotary_factor", 1.0) != 1.0) {
      rope.refuse("partial_rotary_factor", "1", rope.find("partial_rotary_factor")->dump());
    }
    config.rope_scaling = parse_scaling(rope, rope.find("rope_type") == nullptr ? "type" : "rope_type");
    return;
  }
}

void parse_sizes(const Fields& fields, ModelConfig& config) {
  const bool llama = config.model_type == "llama";
  config.vocab_size = fields.positive("vocab_size");
  config.hidden_size = fields.positive("hidden_size");
  config.intermediate_size = fields.positive("intermediate_size");
  config.num_hidden_layers = fields.positive("num_hidden_layers");
  config.num_attention_heads = fields.positive("num_attention_heads");
  config.num_key_value_heads = fields.positive("num_key_value_heads", llama ? config.num_attention_heads : 32);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    fields.refuse("num_key_value_heads",
                  "a divisor of num_attention_heads, " + std::to_string(config.num_attention_heads),
                  std::to_string(config.num_key_value_heads));
  }
  if (fields.find("head_dim") == nullptr && config.model_type != "qwen3" &&
      config.hidden_size % config.num_attention_heads != 0) {
    fields.refuse("hidden_size", "a multiple of num_attention_heads, " + std::to_string(config.num_attention_heads),
                  std::to_string(config.hidden_size));
  }
  const int64_t head_dim = config.model_type == "qwen3" ? 128 : config.hidden_size / config.num_attention_heads;
  config.head_dim = fields.positive("head_dim", head_dim);
  if (config.head_dim % 2 != 0) fields.refuse("head_dim", "an even number", std::to_string(config.head_dim));
  config.max_position_embeddings = fields.positive("max_position_embeddings", llama ? 2048 : 32768);
}

void parse_token_ids(const Fields& fields, ModelConfig& config) {
  config.eos_token_ids = fields.token_ids("eos_token_id");
  config.bos_token_id = fields.token_id("bos_token_id");
  config.pad_token_id = fields.token_id("pad_token_id");
}

}  // namespace

ModelConfig parse_config(const std::string& text, const std::string& where) {
  const Json object = parse_object(text, where);
  const Fields fields(object, where);
  ModelConfig config;
  parse_family(fields, config);
  refuse_unsupported(fields);
  parse_sizes(fields, config);
  parse_rope(fields, config);
  parse_token_ids(fields, config);
  config.rms_norm_eps = fields.positive_number("rms_norm_eps", 1e-6);
  config.initializer_range = fields.positive_number("initializer_range", 0.02);
  config.tie_word_embeddings = fields.flag("tie_word_embeddings", false);
  const bool attention_bias = config.model_type != "qwen2" && fields.flag("attention_bias", false);
  config.qkv_bias = config.model_type == "qwen2" || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = config.model_type == "llama" && fields.flag("mlp_bias", false);
  config.qk_norm = config.model_type == "qwen3";
  const char* dtype_key = fields.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  config.dtype = fields.text(dtype_key, "float32");
  if (config.dtype != "float32" && config.dtype != "bfloat16" && config.dtype != "float16") {
    fields.refuse(dtype_key, "\"float32\", \"bfloat16\" or \"float16\"", "\"" + config.dtype + "\"");
  }
  return config;
}

ModelConfig read_config(const fs::path& model_dir) {
  const fs::path path = model_dir / "config.json";
  if (!fs::exists(path)) {
    throw Error(ErrorKind::refused, model_dir.string() + ": there is no config.json",
                "give a Hugging Face model folder");
  }
  ModelConfig config = parse_config(read_file(path), path.string());
  const fs::path generation = model_dir / "generation_config.json";
  if (fs::exists(generation)) {
    const Json object = parse_object(read_file(generation), generation.string());
    const std::vector<int64_t> ids = Fields(object, generation.string()).token_ids("eos_token_id");
    if (!ids.empty()) config.eos_token_ids = ids;
  }
  return config;
}

}  // namespace vime::arch
