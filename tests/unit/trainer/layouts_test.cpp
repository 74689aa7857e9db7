// Every layout computes what one rank computes: gradients, log-probs, losses, weights after a step, checkpoints.
#include "torch_doctest.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.hpp"
#include "layouts.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

struct Trained {
  std::map<std::string, std::vector<double>> dump;
  double loss = 0.0;
  double grad_norm = 0.0;
};

Trained train(const RankOptions& options, const fs::path& folder) {
  rollout::write_train_batch(folder / "batch.safetensors", parallel_batch());
  Trained trained;
  std::mutex mutex;
  run_layout(options, [&](TrainerRank& rank) {
    const std::vector<StepFigures> steps =
        rank.train((folder / "batch.safetensors").string(), (folder / "dump").string());
    const std::lock_guard lock(mutex);
    trained.loss += steps.at(0).policy.terms.loss;
    trained.grad_norm = steps.at(0).grad_norm;
  });
  trained.dump = read_dump(folder / "dump", options);
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
    const Trained expected = train(options_of({}, config), alone.path());
    for (const LayoutOfTest& layout : layouts()) {
      CAPTURE(layout.name());
      CAPTURE(tied);
      const TempDir folder;
      const Trained found = train(options_of(layout, config), folder.path());
      // float32 sums in another order: 1e-7 a term, a few hundred terms a sum.
      CHECK(found.loss == doctest::Approx(expected.loss).epsilon(1e-5));
      CHECK(found.grad_norm == doctest::Approx(expected.grad_norm).epsilon(1e-5));
      for (const auto& [name, values] : expected.dump) {
        CAPTURE(name);
        REQUIRE(found.dump.contains(name));
        CHECK(difference(found.dump.at(name), values) < 1e-4);
      }
      CHECK(found.dump.size() == expected.dump.size());
    }
  }
}
