#include <doctest/doctest.h>

#include "arch/model_config.hpp"
#include "base/error.hpp"

using namespace vime;
using namespace vime::arch;

namespace {

const fs::path kModels = fs::path(VIME_TEST_DATA) / "models";

Json llama_json() {
  return parse_json(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 160,
    "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4})");
}

ModelConfig with(const std::string& key, const Json& value) {
  Json json = llama_json();
  json[key] = value;
  return parse_config(json.dump(), "config.json");
}

// The refusal of a Llama config whose `key` is `value`; it has to name the file and the key.
std::string refusal(const std::string& key, const Json& value) {
  try {
    with(key, value);
    return "accepted";
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(e.message().find("config.json") == 0);
    CHECK_MESSAGE(e.message().find("\"" + key + "\"") != std::string::npos, e.message());
    return e.message();
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the five reference configs are read") {
  const ModelConfig llama = read_config(kModels / "llama");
  CHECK(llama.architecture == "LlamaForCausalLM");
  CHECK(llama.hidden_size == 64);
  CHECK(llama.intermediate_size == 176);
  CHECK(llama.num_key_value_heads == 2);
  CHECK(llama.rope_theta == 500000.0);
  CHECK(llama.rms_norm_eps == 1e-5);
  CHECK_FALSE(llama.rope_scaling.has_value());
  CHECK_FALSE(llama.qk_norm);
  CHECK_FALSE(llama.qkv_bias);
  CHECK(llama.eos_token_ids == std::vector<int64_t>{2});
  CHECK(llama.bos_token_id == 1);
  CHECK_FALSE(llama.pad_token_id.has_value());
  CHECK(llama.dtype == "float32");

  const ModelConfig scaled = read_config(kModels / "llama_rope_scaled");
  CHECK(scaled.rope_scaling == RopeScaling{"llama3", 8.0, 1.0, 4.0, 32});
  CHECK(scaled.tie_word_embeddings);

  const ModelConfig qwen2 = read_config(kModels / "qwen2");
  CHECK(qwen2.qkv_bias);
  CHECK_FALSE(qwen2.output_bias);
  CHECK(qwen2.head_dim == 16);

  const ModelConfig qwen3 = read_config(kModels / "qwen3");
  CHECK(qwen3.qk_norm);
  CHECK(qwen3.head_dim == 24);
  CHECK_FALSE(qwen3.tie_word_embeddings);
  CHECK(read_config(kModels / "qwen3_tied_mha").num_hidden_layers == 3);
}

TEST_CASE("the older spelling of rope and dtype keys means the same") {
  Json old_form = llama_json();
  old_form["rope_theta"] = 5e5;
  old_form["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  old_form["torch_dtype"] = "bfloat16";
  Json new_form = llama_json();
  new_form["rope_parameters"] = {{"rope_theta", 5e5}, {"rope_type", "linear"}, {"factor", 2.0}};
  new_form["dtype"] = "bfloat16";
  const ModelConfig config = parse_config(old_form.dump(), "old");
  CHECK(config == parse_config(new_form.dump(), "new"));
  CHECK(config.rope_theta == 5e5);
  CHECK(config.rope_scaling->type == "linear");
  CHECK(config.rope_scaling->factor == 2.0);
  CHECK(config.dtype == "bfloat16");

  Json llama3 = llama_json();
  llama3["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 32.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  CHECK(parse_config(llama3.dump(), "llama3").rope_scaling == RopeScaling{"llama3", 32.0, 1.0, 4.0, 8192});
  CHECK_FALSE(with("rope_scaling", nullptr).rope_scaling.has_value());
  CHECK_FALSE(with("rope_scaling", {{"rope_type", "default"}}).rope_scaling.has_value());
}

TEST_CASE("absent keys take the defaults of transformers") {
  const ModelConfig llama = parse_config(llama_json().dump(), "llama");
  CHECK(llama.num_key_value_heads == 4);
  CHECK(llama.head_dim == 16);
  CHECK(llama.rope_theta == 10000.0);
  CHECK(llama.max_position_embeddings == 2048);
  Json qwen3 = llama_json();
  qwen3["architectures"] = {"Qwen3ForCausalLM"};
  qwen3["model_type"] = "qwen3";
  qwen3["num_key_value_heads"] = 2;
  CHECK(parse_config(qwen3.dump(), "qwen3").head_dim == 128);
  Json nameless = llama_json();
  nameless.erase("architectures");
  CHECK(parse_config(nameless.dump(), "nameless").architecture == "LlamaForCausalLM");
}

TEST_CASE("biases follow the family") {
  CHECK(with("attention_bias", true).qkv_bias);
  CHECK(with("attention_bias", true).output_bias);
  CHECK(with("mlp_bias", true).mlp_bias);
  CHECK_FALSE(with("mlp_bias", false).mlp_bias);
}

TEST_CASE("a config that vime cannot run is refused by field, with what was found") {
  CHECK(has(refusal("architectures", {"GemmaForCausalLM"}), "found \"GemmaForCausalLM\""));
  CHECK(has(refusal("architectures", Json::array()), "a list of one name"));
  CHECK(has(refusal("model_type", "qwen2"), "found \"qwen2\""));
  CHECK(has(refusal("hidden_act", "gelu"), "found \"gelu\""));
  CHECK(has(refusal("layer_types", {"full_attention", "sliding_attention"}), "sliding_attention"));
  CHECK(has(refusal("quantization_config", {{"bits", 4}}), "not supported"));
  CHECK(has(refusal("hidden_size", "64"), "expected a positive integer, found \"64\""));
  CHECK(has(refusal("hidden_size", 66), "a multiple of num_attention_heads, 4"));
  CHECK(has(refusal("hidden_size", 0), "found 0"));
  CHECK(has(refusal("hidden_size", -64), "found -64"));
  CHECK(has(refusal("hidden_size", 64.5), "found 64.5"));
  CHECK(has(refusal("vocab_size", nullptr), "is missing"));
  CHECK(has(refusal("num_key_value_heads", 3), "a divisor of num_attention_heads, 4"));
  CHECK(has(refusal("head_dim", 15), "an even number"));
  CHECK(has(refusal("tie_word_embeddings", 1), "true or false"));
  CHECK(has(refusal("rms_norm_eps", 0), "above 0"));
  CHECK(has(refusal("torch_dtype", "int8"), "found \"int8\""));
  CHECK(has(refusal("eos_token_id", "</s>"), "token id"));
  CHECK(has(refusal("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}), "found \"yarn\""));
  CHECK(has(refusal("rope_scaling", {{"rope_type", "linear"}}), "\"factor\" is missing"));
  CHECK(has(refusal("rope_parameters", 3), "an object"));
  CHECK(has(refusal("partial_rotary_factor", 0.5), "found 0.5"));

  Json sliding = llama_json();
  sliding["use_sliding_window"] = true;
  CHECK_NOTHROW(parse_config(sliding.dump(), "without a window"));
  sliding["sliding_window"] = 4096;
  CHECK_THROWS_WITH_AS(
      parse_config(sliding.dump(), "here"),
      "here: \"use_sliding_window\": expected false: sliding-window attention is not supported, found true", Error);
}

TEST_CASE("a folder without a config and a config that is no JSON object are refused") {
  TempDir dir;
  CHECK_THROWS_AS(read_config(dir.path()), Error);
  write_file_atomic(dir.path() / "config.json", "[]");
  CHECK_THROWS_AS(read_config(dir.path()), Error);
  write_file_atomic(dir.path() / "config.json", "{");
  CHECK_THROWS_AS(read_config(dir.path()), Error);
}

TEST_CASE("eos ids of generation_config.json win over those of config.json") {
  TempDir dir;
  write_file_atomic(dir.path() / "config.json", llama_json().dump());
  CHECK(read_config(dir.path()).eos_token_ids.empty());
  write_file_atomic(dir.path() / "generation_config.json", R"({"eos_token_id": [2, 7]})");
  CHECK(read_config(dir.path()).eos_token_ids == std::vector<int64_t>{2, 7});
}

TEST_CASE("a written config reads back to the same") {
  for (const char* name : {"llama", "llama_rope_scaled", "qwen2", "qwen3", "qwen3_tied_mha"}) {
    CAPTURE(name);
    ModelConfig config = read_config(kModels / name);
    config.eos_token_ids = {2, 9};
    config.pad_token_id = 0;
    CHECK(parse_config(config_json(config, config.dtype).dump(), name) == config);
  }
  CHECK(parse_config(config_json(preset("tiny", 20), "float32").dump(), "tiny") == preset("tiny", 20));
}

TEST_CASE("configs that compute otherwise are told apart by the first setting, and token ids do not count") {
  const ModelConfig wanted = read_config(kModels / "qwen3");
  ModelConfig found = wanted;
  found.eos_token_ids = {2, 9};
  found.pad_token_id = 0;
  found.initializer_range = 1.0;
  found.dtype = "bfloat16";
  CHECK(first_difference(wanted, found).empty());
  found.vocab_size += 1;
  CHECK(first_difference(wanted, found) ==
        "\"vocab_size\" is " + std::to_string(wanted.vocab_size + 1) + ", not " + std::to_string(wanted.vocab_size));
  found = wanted;
  found.rope_scaling = RopeScaling{"linear", 2.0};  // of which the other's config.json says nothing
  CHECK(first_difference(wanted, found).find("rope") != std::string::npos);
  CHECK(first_difference(found, wanted).find("rope") != std::string::npos);
}

TEST_CASE("an unknown preset is refused with the list of known ones") {
  CHECK(preset_names() ==
        std::vector<std::string>{"tiny", "tiny-parallel", "tiny-vllm", "small", "qwen3-0.6b", "qwen3-4b", "qwen3-8b"});
  CHECK_THROWS_WITH_AS(preset("large", 20),
                       "unknown model preset \"large\"; expected one of tiny, tiny-parallel, tiny-vllm, small, "
                       "qwen3-0.6b, qwen3-4b, qwen3-8b",
                       Error);
  CHECK_THROWS_AS(preset("tiny", 0), Error);
}
