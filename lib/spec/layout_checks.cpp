// How the model is cut over devices: TP x PP x CP divides the trainer's ranks (the rest is DP), and tensor parallelism,
// of the trainer and of an engine, and pipeline stages suit the model. What does not is refused with the sizes that do.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "arch/parallel_sizes.hpp"
#include "base/strings.hpp"
#include "spec/checks.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

using Sizes = std::vector<int64_t>;

std::string text(int64_t number) {
  return std::to_string(number);
}

// "1, 2, 4 or 8": of a long list the sizes nearest to the one that was asked for.
std::string alternatives(Sizes sizes, int64_t asked) {
  constexpr size_t kListed = 8;
  std::stable_sort(sizes.begin(), sizes.end(),
                   [asked](int64_t a, int64_t b) { return std::abs(a - asked) < std::abs(b - asked); });
  if (sizes.size() > kListed) sizes.resize(kListed);
  std::sort(sizes.begin(), sizes.end());
  std::vector<std::string> words;
  for (const int64_t size : sizes) words.push_back(text(size));
  if (words.size() < 2) return join(words, "");
  const std::string last = words.back();
  words.pop_back();
  return join(words, ", ") + " or " + last;
}

struct Dimension {
  const char* word;
  const char* key;  // in the section "trainer"
  int64_t size;
  std::string fault;  // why the model cannot be cut so; "" when it can
  Sizes possible;     // with the other two as they are
};

using Dimensions = std::array<Dimension, 3>;  // TP, PP, CP

std::string fault_of(const std::optional<arch::ModelConfig>& model, size_t dimension, int64_t size) {
  if (!model || dimension == 2) return "";
  return dimension == 0 ? arch::tensor_parallel_fault(*model, size) : arch::pipeline_parallel_fault(*model, size);
}

Dimensions dimensions_of(const Trainer& trainer, const std::optional<arch::ModelConfig>& model, int64_t ranks) {
  Dimensions all{{{"TP", "tensor_model_parallel_size", trainer.tensor_model_parallel_size, "", {}},
                  {"PP", "pipeline_model_parallel_size", trainer.pipeline_model_parallel_size, "", {}},
                  {"CP", "context_parallel_size", trainer.context_parallel_size, "", {}}}};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].fault = fault_of(model, i, all[i].size);
    const int64_t others = all[(i + 1) % 3].size * all[(i + 2) % 3].size;
    if (ranks % others != 0) continue;
    for (const int64_t size : arch::divisors(ranks / others)) {
      if (fault_of(model, i, size).empty()) all[i].possible.push_back(size);
    }
  }
  return all;
}

std::string path_of(const Dimension& dimension) {
  return std::string("trainer.") + dimension.key;
}

std::string size_text(const Dimension& dimension) {
  return std::string(dimension.word) + " " + text(dimension.size);
}

std::string ranks_text(int64_t ranks) {
  return text(ranks) + (ranks == 1 ? " rank" : " ranks");
}

void refuse_fault(const Dimensions& all, size_t which, int64_t ranks, Problems& problems) {
  const Dimension& one = all[which];
  const std::string around =
      size_text(all[which == 0 ? 1 : 0]) + " and " + size_text(all[which == 2 ? 1 : 2]) + " on " + ranks_text(ranks);
  problems.add_at(path_of(one), quoted(path_of(one)) + " is " + text(one.size) + ", but " + one.fault +
                                    (one.possible.empty()
                                         ? "; no size is possible with " + around
                                         : "; possible with " + around + ": " + alternatives(one.possible, one.size)));
}

// The fault in a product is reported at the first size that could be changed alone.
std::string product_key(const Dimensions& all, const Problems& problems) {
  std::string first_given;
  for (const Dimension& one : all) {
    if (!problems.is_given(path_of(one))) continue;
    if (!one.possible.empty()) return path_of(one);
    if (first_given.empty()) first_given = path_of(one);
  }
  return first_given.empty() ? path_of(all[0]) : first_given;
}

void refuse_product(const Dimensions& all, int64_t ranks, Problems& problems) {
  std::vector<std::string> words, cures;
  const bool sound = std::all_of(all.begin(), all.end(), [](const Dimension& one) { return one.fault.empty(); });
  for (const Dimension& one : all) {
    words.push_back(size_text(one));
    if (sound && !one.possible.empty())
      cures.push_back(std::string(one.key) + " " + alternatives(one.possible, one.size));
  }
  const int64_t product = all[0].size * all[1].size * all[2].size;
  const std::string cure = cures.empty() ? "no change of one of them alone helps, the product can be " +
                                               alternatives(arch::divisors(ranks), product)
                                         : "possible, with the other two as they are: " + join(cures, "; ");
  problems.add_at(product_key(all, problems), join(words, " x ") + " = " + text(product) +
                                                  " does not divide the trainer's " + ranks_text(ranks) + "; " + cure);
}

void check_trainer(const ExperimentSpec& spec, const std::optional<arch::ModelConfig>& model, Problems& problems) {
  if (!problems.sound({"placement.actor_num_nodes", "placement.actor_num_gpus_per_node",
                       "trainer.tensor_model_parallel_size", "trainer.pipeline_model_parallel_size",
                       "trainer.context_parallel_size"}))
    return;
  const int64_t ranks = spec.placement.actor_num_nodes * spec.placement.actor_num_gpus_per_node;
  const Dimensions all = dimensions_of(spec.trainer, model, ranks);
  bool cured = false;  // a size offered for a fault divides the ranks too
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].fault.empty()) continue;
    refuse_fault(all, i, ranks, problems);
    cured = cured || !all[i].possible.empty();
  }
  if (ranks % (all[0].size * all[1].size * all[2].size) != 0 && !cured) refuse_product(all, ranks, problems);
}

void check_engines(const ExperimentSpec& spec, const arch::ModelConfig& model, Problems& problems) {
  const char* key = "placement.rollout_num_gpus_per_engine";
  if (!problems.sound({key, "placement.rollout_num_gpus"})) return;
  const int64_t devices = spec.placement.rollout_num_gpus_per_engine;
  const std::string fault = arch::tensor_parallel_fault(model, devices);
  if (fault.empty()) return;
  Sizes possible = arch::legal_tensor_parallel(model);
  std::erase_if(possible, [&spec](int64_t size) { return spec.placement.rollout_num_gpus % size != 0; });
  problems.add_at(key, "an engine of " + text(devices) + " devices cannot hold the model: " + fault +
                           "; possible with rollout_num_gpus " + text(spec.placement.rollout_num_gpus) + ": " +
                           alternatives(possible, devices));
}

}  // namespace

void check_layout(const ExperimentSpec& spec, const std::optional<arch::ModelConfig>& model, Problems& problems) {
  check_trainer(spec, model, problems);
  if (model) check_engines(spec, *model, problems);
}

}  // namespace vime::spec
