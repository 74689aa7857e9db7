// The sources of prompts, for training and for evaluations. What the files hold is read later, by the run.
#include <set>

#include "base/error.hpp"
#include "data/prompt_source.hpp"
#include "spec/checks.hpp"
#include "spec/keys.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

void check_one(const std::string& path, const std::string& prompt_data, Problems& problems) {
  try {
    data::check_source(data::parse_source(prompt_data));
  } catch (const Error& error) {
    problems.add_at(path, quoted(path) + ": " + error.what());
  }
}

// Under an absolute path; what is no source is refused by the check.
void make_absolute(std::string& prompt_data) {
  try {
    prompt_data = data::absolute_source(prompt_data);
  } catch (const Error&) {
    return;
  }
}

// Two roles under one key would take the label for the prompt, or the like.
void check_keys(const Data& data, Problems& problems) {
  std::set<std::string> keys{data.input_key};
  const auto check = [&](const char* path, const std::string& key) {
    if (keys.insert(key).second) return;
    problems.add_at(path, quoted(path) + " is " + quoted(key) + ", which another key of \"data\" names already");
  };
  if (data.label_key) check("data.label_key", *data.label_key);
  check("data.metadata_key", data.metadata_key);
  check("data.reward_key", data.reward_key);
}

}  // namespace

void derive_data(ExperimentSpec& spec, const Problems&) {
  // Workers and later runs read the resolved spec from other folders.
  for (std::string& one : spec.data.prompt_data) make_absolute(one);
  if (spec.eval.prompt_data) make_absolute(*spec.eval.prompt_data);
  for (EvalDataset& set : spec.eval.datasets) make_absolute(set.prompt_data);
}

void check_data(const ExperimentSpec& spec, Problems& problems) {
  if (problems.sound({"data.prompt_data"})) {
    for (const std::string& one : spec.data.prompt_data) check_one("data.prompt_data", one, problems);
  }
  if (problems.sound({"data.input_key", "data.label_key", "data.metadata_key", "data.reward_key"})) {
    check_keys(spec.data, problems);
  }
  for (size_t entry = 0; entry < spec.eval.datasets.size(); ++entry) {
    // The short form was moved into the list.
    const std::string path = entry_path("eval.datasets", entry) + ".prompt_data";
    const std::string given = problems.is_given(path) ? path : "eval.prompt_data";
    if (!problems.is_given(given) || !problems.sound({given.c_str()})) continue;
    check_one(given, spec.eval.datasets[entry].prompt_data, problems);
  }
}

}  // namespace vime::spec
