#include <optional>

#include "arch/model_config.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "spec/checks.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

// No check depends on the vocabulary, which the tokenizer decides later.
constexpr int64_t kAnyVocabulary = 64;

bool is_named_once(const Model& model, Problems& problems) {
  if (model.path && model.preset) {
    problems.add_at("model.preset", "\"model.path\" and \"model.preset\" are both given; a run has one model");
  } else if (!model.path && !model.preset) {
    problems.add_at("model", "\"model.path\" (a folder) or \"model.preset\" (a name) is missing");
  } else {
    return true;
  }
  return false;
}

std::string missing_folder(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return "there is no folder " + quoted(path);
  if (fs::is_regular_file(fs::path(path) / "config.json", ignored)) return "";
  return "the folder " + quoted(path) + " has no config.json; expected a model in Hugging Face format";
}

std::optional<arch::ModelConfig> read_model(const Model& model, Problems& problems) {
  const std::string key = model.path ? "model.path" : "model.preset";
  if (model.path) {
    const std::string missing = missing_folder(*model.path);
    if (!missing.empty()) {
      problems.add_at(key, "\"model.path\": " + missing);
      return std::nullopt;
    }
  }
  try {
    return model.path ? arch::read_config(*model.path) : arch::preset(*model.preset, kAnyVocabulary);
  } catch (const Error& error) {
    problems.add_at(key, quoted(key) + ": " + error.what());
    return std::nullopt;
  }
}

void check_model_length(const ExperimentSpec& spec, const arch::ModelConfig& model, Problems& problems) {
  const bool sound =
      problems.sound({"engine.max_model_len", "rollout.rollout_max_response_len", "rollout.rollout_max_prompt_len"});
  if (!sound || model.max_position_embeddings <= 0) return;
  const int64_t sample = spec.rollout.rollout_max_prompt_len.value_or(1) + spec.rollout.rollout_max_response_len;
  const int64_t asked = spec.engine.max_model_len.value_or(sample);
  if (asked <= model.max_position_embeddings) return;
  const char* key = spec.engine.max_model_len ? "engine.max_model_len" : "rollout.rollout_max_response_len";
  problems.add_at(key, quoted(key) + " asks for sequences of " + std::to_string(asked) +
                           " tokens, but the model takes at most " + std::to_string(model.max_position_embeddings) +
                           " (max_position_embeddings)");
}

}  // namespace

std::optional<arch::ModelConfig> check_model(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"model.path", "model.preset"}) || !is_named_once(spec.model, problems)) return std::nullopt;
  std::optional<arch::ModelConfig> model = read_model(spec.model, problems);
  if (model) check_model_length(spec, *model, problems);
  return model;
}

}  // namespace vime::spec
