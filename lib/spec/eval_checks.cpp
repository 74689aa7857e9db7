// Evaluation: one data set in the short form or a list of them, which is what a resolved spec has.
#include <algorithm>
#include <map>
#include <variant>

#include "base/files.hpp"
#include "base/strings.hpp"
#include "spec/checks.hpp"
#include "spec/keys.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

constexpr const char* kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
constexpr const char* kList = "eval.datasets";

// The fields hold the same type.
void copy_field(const Field& from, const Field& to) {
  std::visit([&to](auto* source) { *std::get<decltype(source)>(to) = *source; }, from);
}

// What the entries of every list of sections leave out is taken from the section around the list.
void inherit(ExperimentSpec& spec, const Problems& problems) {
  for (const Section& section : sections()) {
    for (const Key& list : section.keys) {
      for (size_t entry = 0; list.sections && entry < list.sections->size(spec); ++entry) {
        for (const Key& key : list.sections->entry().keys) {
          const std::string path = entry_path(key_path(section, list), entry) + "." + key.name;
          if (key.inherits.empty() || problems.is_given(path)) continue;
          copy_field(find_key(section, key.inherits)->field(spec, 0), key.field(spec, entry));
        }
      }
    }
  }
}

// "builtin:sort_digits/heldout" -> "sort_digits/heldout", "data/gsm8k.test.jsonl.gz@[0:100]" -> "gsm8k.test"; what a
// name may not hold becomes "_".
std::string name_of(const std::string& prompt_data) {
  const std::string prefix = "builtin:";
  std::string name = prompt_data.rfind(prefix, 0) == 0
                         ? prompt_data.substr(prefix.size())
                         : fs::path(prompt_data.substr(0, prompt_data.find("@["))).filename().string();
  for (const std::string ending : {".gz", ".jsonl", ".json"}) {
    const bool ends =
        name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
    if (ends) name.resize(name.size() - ending.size());
  }
  for (char& c : name) {
    if (std::string_view(kNameCharacters).find(c) == std::string_view::npos) c = '_';
  }
  return name.empty() ? "eval" : name;
}

// A key of an entry where it was given, else the section's key that it was taken from.
std::string origin(const Problems& problems, size_t entry, const std::string& key) {
  const std::string path = entry_path(kList, entry) + "." + key;
  return problems.is_given(path) ? path : "eval." + key;
}

void check_names(const std::vector<EvalDataset>& sets, Problems& problems) {
  std::map<std::string, size_t> seen;
  for (size_t entry = 0; entry < sets.size(); ++entry) {
    const std::string path = entry_path(kList, entry) + ".name";
    const std::string& name = sets[entry].name;
    if (name.size() > 64 || name.find_first_not_of(kNameCharacters) != std::string::npos) {
      problems.add_at(path,
                      quoted(path) +
                          " must be at most 64 letters, digits, \"_\", \".\", \"/\" and \"-\" (it names a metric), "
                          "found " +
                          quoted(name));
      continue;
    }
    const auto [first, added] = seen.emplace(name, entry);
    if (!added) {
      problems.add_at(path, "two data sets are named " + quoted(name) + " (" + entry_path(kList, first->second) +
                                " and " + entry_path(kList, entry) + "); the metric \"eval/" + name +
                                "\" can have one only");
    }
  }
}

// Both are refused once, where they were written: an inherited value is the section's.
void check_sampling(const EvalDataset& set, size_t entry, Problems& problems) {
  const std::string top_k = origin(problems, entry, "top_k");
  if (set.top_k == 0 && problems.sound({top_k.c_str()})) {
    problems.add_at(top_k, quoted(top_k) + " must be -1 (all tokens) or at least 1, found 0");
  }
  const std::string samples = origin(problems, entry, "n_samples_per_eval_prompt");
  if (set.n_samples_per_eval_prompt > 1 && set.temperature == 0 && problems.sound({samples.c_str()})) {
    problems.add_at(samples, quoted(samples) + " is " + std::to_string(set.n_samples_per_eval_prompt) +
                                 ", but at temperature 0 all answers to a prompt are the same; set " +
                                 quoted(origin(problems, entry, "temperature")) + " above 0 or ask for one answer");
  }
}

}  // namespace

void derive_eval(ExperimentSpec& spec, const Problems& problems) {
  Eval& eval = spec.eval;
  if (!problems.is_given("eval.max_response_len")) eval.max_response_len = spec.rollout.rollout_max_response_len;
  if (eval.prompt_data && eval.datasets.empty()) {
    eval.datasets.resize(1);
    eval.datasets[0].name = name_of(*eval.prompt_data);
    eval.datasets[0].prompt_data = *eval.prompt_data;
    eval.prompt_data.reset();
  }
  inherit(spec, problems);
}

void check_eval(const ExperimentSpec& spec, Problems& problems) {
  const Eval& eval = spec.eval;
  if (!problems.sound({"eval.prompt_data", kList})) return;
  if (eval.prompt_data) {
    problems.add_at(kList,
                    "\"eval.prompt_data\" and \"eval.datasets\" are both given; leave prompt_data out and add an "
                    "entry with its value to datasets");
    return;
  }
  check_names(eval.datasets, problems);
  for (size_t entry = 0; entry < eval.datasets.size(); ++entry) check_sampling(eval.datasets[entry], entry, problems);
  if (problems.sound({"eval.eval_interval"}) && eval.eval_interval && eval.datasets.empty()) {
    problems.add_at("eval.eval_interval",
                    "eval.eval_interval is given, but neither eval.prompt_data nor eval.datasets: there is nothing to "
                    "evaluate on");
  }
}

}  // namespace vime::spec
