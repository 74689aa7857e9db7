#include "trainer/pipeline.hpp"

#include "torch_doctest.hpp"

#include <algorithm>
#include <thread>

#include "unit/model/ranks.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

struct Seen {
  std::vector<size_t> forwards, backwards;
  size_t most_in_flight = 0;
  std::vector<double> inputs, gradients;  // by micro-batch
};

// Stages that add 1 to what comes and double what comes back; micro-batch i has i + 1 rows.
std::vector<Seen> run(int stages, size_t micro_batches) {
  std::vector<Seen> seen(static_cast<size_t>(stages));
  model::run_ranks(stages, [&](std::shared_ptr<model::RankGroup> world) {
    const int stage = world->rank();
    std::shared_ptr<model::RankGroup> previous, next;
    for (int boundary = 0; boundary + 1 < stages; ++boundary) {
      const bool mine = stage == boundary || stage == boundary + 1;
      const auto pair =
          world->subgroup("boundary", mine ? std::vector<int>{boundary, boundary + 1} : std::vector<int>{});
      if (stage == boundary) next = pair;
      if (stage == boundary + 1) previous = pair;
    }
    Seen& own = seen[static_cast<size_t>(stage)];
    own.inputs.resize(micro_batches);
    own.gradients.resize(micro_batches);
    size_t in_flight = 0;
    StageWork work;
    work.shape = [](size_t i) { return std::vector<int64_t>{static_cast<int64_t>(i) + 1, 2}; };
    work.forward = [&](size_t i, const torch::Tensor& input) {
      own.forwards.push_back(i);
      own.most_in_flight = std::max(own.most_in_flight, ++in_flight);
      const torch::Tensor x =
          input.defined() ? input : torch::full(work.shape(i), static_cast<double>(10 * i), torch::kFloat32);
      own.inputs[i] = x.mean().item<double>();
      return x + 1;
    };
    work.backward = [&](size_t i, const torch::Tensor& gradient) {
      own.backwards.push_back(i);
      --in_flight;
      const torch::Tensor g =
          gradient.defined() ? gradient : torch::full(work.shape(i), static_cast<double>(i + 1), torch::kFloat32);
      own.gradients[i] = g.mean().item<double>();
      return g * 2;
    };
    Pipeline(previous, next, stages - 1 - stage).forward_backward(micro_batches, work);
  });
  return seen;
}

}  // namespace

TEST_CASE("every micro-batch goes through the stages once in each direction, however many there are of either") {
  for (const int stages : {1, 2, 3, 4}) {
    for (const size_t micro_batches : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4}, size_t{9}}) {
      CAPTURE(stages);
      CAPTURE(micro_batches);
      const std::vector<Seen> seen = run(stages, micro_batches);
      for (int stage = 0; stage < stages; ++stage) {
        const Seen& own = seen[static_cast<size_t>(stage)];
        REQUIRE(own.forwards.size() == micro_batches);
        CHECK(own.forwards == own.backwards);  // first come, first served
        for (size_t i = 0; i < micro_batches; ++i) {
          CHECK(own.forwards[i] == i);
          CHECK(own.inputs[i] == static_cast<double>(10 * i) + stage);
          CHECK(own.gradients[i] == static_cast<double>(i + 1) * (1 << (stages - 1 - stage)));
        }
        // One forward, one backward: what a stage holds does not grow with the number of micro-batches.
        CHECK(own.most_in_flight == std::min(micro_batches, static_cast<size_t>(stages - stage)));
      }
    }
  }
}
