// Every layout computes what one rank computes: gradients, log-probs, losses, weights after a step, checkpoints.
#include "torch_doctest.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "layouts.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

// One step. A single rank leaves its file in the folder; the ranks of a layout are held against `against`.
StepOfTest train(const RankOptions& options, const fs::path& folder, const std::string& against = "") {
  rollout::write_train_batch(folder / "batch.safetensors",
                             parallel_batch(static_cast<uint64_t>(options.config.vocab_size)));
  rollout::StepProbe probe;
  (against.empty() ? probe.write : probe.against) = against.empty() ? (folder / "step").string() : against;
  StepOfTest trained;
  std::mutex mutex;
  run_layout(options, [&](TrainerRank& rank) {
    const auto [steps, answer] = rank.train((folder / "batch.safetensors").string(), &probe);
    const std::lock_guard lock(mutex);
    trained.loss += steps.at(0).policy.terms.loss;
    trained.grad_norm = steps.at(0).grad_norm;
    trained.add(answer, rank.place());
  });
  return trained;
}

// Largest difference, relative to the largest value of the expected tensor.
double difference(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0.0, apart = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    apart = std::max(apart, std::abs(found[i] - expected[i]));
  }
  return apart / std::max(largest, 1e-6);
}

void hold_against(const StepOfTest& found, const StepOfTest& expected) {
  // float32 sums in another order: 1e-7 a term, a few hundred terms a sum.
  CHECK(found.loss == doctest::Approx(expected.loss).epsilon(1e-5));
  CHECK(found.grad_norm == doctest::Approx(expected.grad_norm).epsilon(1e-5));
  for (const auto& [name, tensor] : expected.tensors) {
    CAPTURE(name);
    REQUIRE(found.tensors.contains(name));
    CHECK(found.tensors.at(name).elements == tensor.elements);
    CHECK(found.tensors.at(name).difference < 1e-4 * std::max(tensor.largest, 1e-6));
  }
  CHECK(found.tensors.size() == expected.tensors.size());
  CHECK(difference(found.logprobs, expected.logprobs) < 1e-4);
  CHECK(difference(found.logprobs_after, expected.logprobs_after) < 1e-4);
}

std::vector<LayoutOfTest> layouts() {
  return {{2, 1, 1, 1}, {4, 1, 1, 1}, {8, 1, 1, 1}, {1, 2, 1, 1}, {1, 4, 1, 1}, {1, 1, 2, 1},
          {1, 1, 4, 1}, {1, 1, 8, 1}, {1, 1, 1, 2}, {1, 1, 1, 8}, {2, 2, 1, 1}, {2, 1, 2, 1},
          {1, 2, 2, 1}, {2, 2, 2, 1}, {1, 2, 2, 2}, {2, 1, 2, 2}, {2, 4, 1, 1}, {1, 4, 2, 1}};
}

}  // namespace

TEST_CASE("every layout gives the gradients, log-probs, loss and weights of one rank") {
  for (const bool tied : {true, false}) {
    const arch::ModelConfig config = parallel_config(tied);
    const TempDir alone;
    const StepOfTest expected = train(options_of({}, config), alone.path());
    for (const LayoutOfTest& layout : layouts()) {
      CAPTURE(layout.name());
      CAPTURE(tied);
      const TempDir folder;
      const StepOfTest found = train(options_of(layout, config), folder.path(), alone.path() / "step");
      hold_against(found, expected);
    }
  }
}

TEST_CASE("layers that are computed again in the backward pass change nothing, whatever the layout") {
  const arch::ModelConfig config = parallel_config(true);
  const TempDir alone;
  train(options_of({}, config), alone.path());
  const std::string file = alone.path() / "step";
  for (const LayoutOfTest& layout : {LayoutOfTest{}, LayoutOfTest{2, 2, 1, 1}, LayoutOfTest{1, 1, 2, 1}}) {
    CAPTURE(layout.name());
    RankOptions options = options_of(layout, config);
    const TempDir kept, again;
    const StepOfTest expected = train(options, kept.path(), file);
    options.recompute = arch::Recompute::full;
    const StepOfTest found = train(options, again.path(), file);
    CHECK((found.tensors == expected.tensors));
    CHECK(found.logprobs_after == expected.logprobs_after);
    CHECK(found.loss == expected.loss);
  }
}

TEST_CASE("a tensor-parallel rank whose part of the vocabulary is empty takes part all the same") {
  // 13 tokens in parts of 2: the eighth rank has none.
  for (const bool tied : {true, false}) {
    const arch::ModelConfig config = parallel_config(tied, 13);
    const TempDir alone;
    const StepOfTest expected = train(options_of({}, config), alone.path());
    for (const LayoutOfTest& layout : {LayoutOfTest{8, 1, 1, 1}, LayoutOfTest{8, 2, 1, 1}}) {
      CAPTURE(layout.name());
      CAPTURE(tied);
      const TempDir folder;
      hold_against(train(options_of(layout, config), folder.path(), alone.path() / "step"), expected);
    }
  }
}

TEST_CASE("several steps with GSPO, a reference model, weight decay, clipping and per-token means agree as well") {
  const arch::ModelConfig config = parallel_config(true);
  const auto weights_after = [&](const LayoutOfTest& layout, const fs::path& folder) {
    RankOptions options = options_of(layout, config);
    options.policy.loss.type = algo::PolicyLossType::gspo;
    options.policy.loss.reducer = algo::Reducer::token_mean;
    options.policy.loss.kl_type = algo::KlType::k3;
    options.policy.loss.kl_loss_coef = 0.3;
    options.optimizer.weight_decay = 0.1;
    options.optimizer.clip_grad = 0.05;
    options.with_reference = true;
    options.global_batch_size = 8;  // two steps on each batch
    rollout::write_train_batch(folder / "batch.safetensors", parallel_batch());
    std::vector<double> losses(4, 0.0);
    std::mutex mutex;
    run_layout(options, [&](TrainerRank& rank) {
      for (size_t rollout = 0; rollout < 2; ++rollout) {
        const auto steps = rank.train((folder / "batch.safetensors").string()).first;
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < 2; ++i) losses.at(2 * rollout + i) += steps.at(i).policy.terms.loss;
      }
      rank.save((folder / "saved").string());
    });
    std::map<std::string, std::vector<double>> values = {{"losses", losses}};
    const tensor::SafetensorsFile file(folder / "saved/model/model.safetensors");
    for (const tensor::TensorView& view : file.tensors()) {
      const auto* data = reinterpret_cast<const float*>(view.data);
      values[view.info.name] = {data, data + tensor::element_count(view.info.shape)};
    }
    return values;
  };
  const TempDir alone;
  const auto expected = weights_after({}, alone.path());
  for (const LayoutOfTest& layout : std::vector<LayoutOfTest>{{2, 2, 2, 1}, {1, 2, 2, 2}, {1, 1, 4, 1}, {4, 1, 1, 2}}) {
    CAPTURE(layout.name());
    const TempDir folder;
    const auto found = weights_after(layout, folder.path());
    for (const auto& [name, values] : expected) {
      CAPTURE(name);
      CHECK(difference(found.at(name), values) < 1e-4);
    }
  }
}

TEST_CASE("a rank that fails ends the others' waits at once, and they know that it was not them") {
  class Failing final : public TrainerRank {
   public:
    using TrainerRank::TrainerRank;

   protected:
    void complete_gradients() override {
      if (place().rank == 1) throw Error(ErrorKind::exhausted, "planted: no memory");
      TrainerRank::complete_gradients();
    }
  };
  const TempDir folder;
  rollout::write_train_batch(folder.path() / "batch.safetensors", parallel_batch());
  std::mutex mutex;
  std::vector<std::string> bystanders;
  const auto begin = SteadyClock::now();
  CHECK_THROWS_WITH_AS(run_layout(
                           options_of({2, 2, 1, 1}, parallel_config(true)),
                           [&](TrainerRank& rank) {
                             try {
                               rank.train((folder.path() / "batch.safetensors").string());
                             } catch (const Error& error) {
                               const bool bystander = rank.left_by_others();
                               rank.leave("failed");
                               const std::lock_guard lock(mutex);
                               if (bystander) bystanders.push_back(error.message());
                               if (!bystander) throw;
                             }
                           },
                           [](RankOptions options) { return std::make_unique<Failing>(std::move(options)); }),
                       doctest::Contains("planted: no memory"), Error);
  CHECK(bystanders.size() == 3);
  CHECK(seconds_since(begin) < 30.0);  // and not the 120 s that the groups wait
}

TEST_CASE(
    "a rank that is asked to keeps its weights and its reference rounded, from the log-probs before the step on") {
  const TempDir folder;
  const std::string batch = (folder.path() / "batch.safetensors").string();
  rollout::write_train_batch(batch, parallel_batch());
  RankOptions options = options_of({}, parallel_config(true));
  options.with_reference = true;
  options.policy.loss.kl_type = algo::KlType::k3;
  options.policy.loss.kl_loss_coef = 0.3;
  const auto train_with = [&](bool rounded, const std::string& file) {
    const rollout::StepProbe probe{.write = (folder.path() / file).string(), .round_weights = rounded};
    StepOfTest trained;
    run_layout(options, [&](TrainerRank& rank) {
      const auto [steps, answer] = rank.train(batch, &probe);
      CHECK(steps.at(0).policy.terms.kl_loss == 0.0);  // to a reference that was rounded likewise
      trained.add(answer, rank.place());
    });
    return trained;
  };
  const StepOfTest exact = train_with(false, "exact"), rounded = train_with(true, "rounded");
  CHECK(exact.logprobs != rounded.logprobs);
  CHECK(difference(rounded.logprobs, exact.logprobs) < 0.1);
  CHECK(weights_beyond_bfloat16(folder.path() / "exact") > 0);
  CHECK(weights_beyond_bfloat16(folder.path() / "rounded") == 0);
}
