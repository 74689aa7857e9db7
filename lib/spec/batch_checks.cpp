// Batch sizes: rollout_batch_size x n_samples_per_prompt samples of a rollout = num_steps_per_rollout x
// global_batch_size, and each global batch is shared evenly by the data-parallel ranks. What does not divide is refused
// with the nearest values that do: slime drops the samples that are left over without a word.
#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "base/strings.hpp"
#include "spec/checks.hpp"

namespace vime::spec {
namespace {

struct Batches {
  int64_t prompts = 0;
  int64_t samples_per_prompt = 0;
  int64_t global = 0;
  int64_t steps = 0;
  int64_t ranks = 1;  // data-parallel

  int64_t samples() const { return prompts * samples_per_prompt; }
};

std::string text(int64_t number) {
  return std::to_string(number);
}

// The nearest number below and the nearest above `from` (itself left out) in [1, most] that `fits`, as "64 or 128"; ""
// when there is none.
std::string nearest_numbers(int64_t from, int64_t most, const std::function<bool(int64_t)>& fits) {
  constexpr int64_t kTried = 1000000;
  std::vector<std::string> found;
  for (int64_t n = std::min(from - 1, most); n >= 1 && n > from - kTried; --n) {
    if (!fits(n)) continue;
    found.push_back(text(n));
    break;
  }
  for (int64_t n = from + 1; n <= most && n < from + kTried; ++n) {
    if (!fits(n)) continue;
    found.push_back(text(n));
    break;
  }
  return join(found, " or ");
}

// "rollout_batch_size 28 with global_batch_size 224, or ...": other numbers of prompts that ranks and steps divide.
std::string nearest_rollouts(const Batches& batches, int64_t steps) {
  const int64_t unit = batches.ranks * steps;
  const int64_t step = unit / std::gcd(unit, batches.samples_per_prompt);
  const int64_t below = (batches.prompts - 1) / step * step;
  std::vector<std::string> found;
  for (const int64_t prompts : {below, below + step == batches.prompts ? below + 2 * step : below + step}) {
    if (prompts < 1) continue;
    found.push_back("rollout_batch_size " + text(prompts) + " with global_batch_size " +
                    text(prompts * batches.samples_per_prompt / steps));
  }
  return join(found, ", or ");
}

std::string samples_text(const Batches& batches) {
  return text(batches.samples()) + " samples of a rollout (rollout_batch_size " + text(batches.prompts) +
         " x n_samples_per_prompt " + text(batches.samples_per_prompt) + ")";
}

// What else to choose for global_batch_size; where nothing divides, what else for the rollout.
std::string cure(const Batches& batches) {
  const std::string sizes = nearest_numbers(batches.global, batches.samples(), [&batches](int64_t size) {
    return batches.samples() % size == 0 && size % batches.ranks == 0;
  });
  return "; nearest valid: " + (sizes.empty() ? nearest_rollouts(batches, 1) : "global_batch_size " + sizes);
}

void check_steps(const Batches& batches, bool global_given, Problems& problems) {
  if (batches.samples() % batches.steps != 0) {
    const std::string steps = nearest_numbers(batches.steps, batches.samples(), [&batches](int64_t count) {
      return batches.samples() % count == 0 && batches.samples() / count % batches.ranks == 0;
    });
    problems.add_at("trainer.num_steps_per_rollout",
                    "the " + samples_text(batches) + " cannot be cut into " + text(batches.steps) +
                        " equal steps; nearest valid: " +
                        (steps.empty() ? nearest_rollouts(batches, batches.steps) : "num_steps_per_rollout " + steps));
  } else if (global_given && batches.steps * batches.global != batches.samples()) {
    problems.add_at("trainer.num_steps_per_rollout",
                    "num_steps_per_rollout " + text(batches.steps) + " x global_batch_size " + text(batches.global) +
                        " is not the " + samples_text(batches) + "; give one of the two, or global_batch_size " +
                        text(batches.samples() / batches.steps));
  }
}

// Where the size of a step comes from, and so where a fault in it is reported.
const char* batch_key(const Problems& problems) {
  if (problems.is_given("trainer.global_batch_size")) return "trainer.global_batch_size";
  if (problems.is_given("trainer.num_steps_per_rollout")) return "trainer.num_steps_per_rollout";
  return "rollout.rollout_batch_size";
}

}  // namespace

void derive_batches(ExperimentSpec& spec, const Problems& problems) {
  Trainer& trainer = spec.trainer;
  const int64_t samples = spec.rollout.rollout_batch_size * spec.rollout.n_samples_per_prompt;
  const bool steps_given = problems.is_given("trainer.num_steps_per_rollout") && trainer.num_steps_per_rollout > 0;
  const bool global_given = problems.is_given("trainer.global_batch_size") && trainer.global_batch_size > 0;
  if (!steps_given)
    trainer.num_steps_per_rollout = global_given ? std::max<int64_t>(samples / trainer.global_batch_size, 1) : 1;
  if (!global_given) trainer.global_batch_size = samples / trainer.num_steps_per_rollout;
}

void check_batches(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"rollout.rollout_batch_size", "rollout.n_samples_per_prompt", "trainer.global_batch_size",
                       "trainer.num_steps_per_rollout"})) {
    return;
  }
  Batches batches{spec.rollout.rollout_batch_size, spec.rollout.n_samples_per_prompt, spec.trainer.global_batch_size,
                  spec.trainer.num_steps_per_rollout, 1};
  const bool layout_sound = problems.sound({"placement.actor_num_nodes", "placement.actor_num_gpus_per_node",
                                            "trainer.tensor_model_parallel_size",
                                            "trainer.pipeline_model_parallel_size", "trainer.context_parallel_size"});
  if (layout_sound) {
    batches.ranks =
        std::max<int64_t>(1, spec.placement.actor_num_nodes * spec.placement.actor_num_gpus_per_node /
                                 (spec.trainer.tensor_model_parallel_size * spec.trainer.pipeline_model_parallel_size *
                                  spec.trainer.context_parallel_size));
  }
  const bool steps_given = problems.is_given("trainer.num_steps_per_rollout");
  const bool global_given = problems.is_given("trainer.global_batch_size");
  if (steps_given) check_steps(batches, global_given, problems);
  if (!problems.sound({"trainer.num_steps_per_rollout"})) return;
  if (global_given && batches.samples() % batches.global != 0) {
    problems.add_at("trainer.global_batch_size", "the " + samples_text(batches) +
                                                     " cannot be cut into steps of global_batch_size " +
                                                     text(batches.global) + cure(batches));
  } else if (batches.global % batches.ranks != 0) {
    problems.add_at(batch_key(problems), "a step of " + text(batches.global) +
                                             " samples (global_batch_size) cannot be shared equally by " +
                                             text(batches.ranks) + " data-parallel ranks" + cure(batches));
  }
}

}  // namespace vime::spec
