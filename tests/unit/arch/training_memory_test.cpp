#include "arch/training_memory.hpp"

#include <doctest/doctest.h>

#include "arch/shapes.hpp"
#include "base/error.hpp"

using namespace vime;
using namespace vime::arch;

namespace {

TrainingWork work_of(const ModelConfig& config) {
  TrainingWork work;
  work.stage = whole_model(config);
  work.tokens = 16384;
  return work;
}

}  // namespace

TEST_CASE("what is computed again goes by its names, and by no other") {
  CHECK(parse_recompute("none") == Recompute::none);
  CHECK(parse_recompute("selective") == Recompute::selective);
  CHECK(parse_recompute("full") == Recompute::full);
  CHECK_THROWS_AS(parse_recompute("some"), Error);
}

TEST_CASE("bf16 training keeps 18 bytes a parameter, and a Qwen3-4B with 16k tokens fits in 139 GiB") {
  const ModelConfig config = shape("qwen3-4b");
  const TrainingMemory memory = training_memory(config, work_of(config));
  const auto parameters = static_cast<double>(parameter_count(config));
  const auto state =
      static_cast<double>(memory.weights + memory.master + memory.gradients + memory.moments) / parameters;
  CHECK(state == doctest::Approx(18).epsilon(0.001));
  CHECK(memory.total() < uint64_t{139} << 30);
}

TEST_CASE("what is computed again is not kept, and ranks share the optimizer's state") {
  const ModelConfig config = shape("qwen3-4b");
  TrainingWork work = work_of(config);
  const TrainingMemory selective = training_memory(config, work);
  work.recompute = Recompute::none;
  const TrainingMemory all = training_memory(config, work);
  work.recompute = Recompute::full;
  const TrainingMemory layers = training_memory(config, work);
  // By hand, for a token of a layer: the outputs of two norms and the product that enters the down projection.
  CHECK(all.activations - selective.activations == uint64_t{2} * (2 * 2560 + 9728) * 16384 * 36);
  CHECK(layers.activations == uint64_t{2} * 2560 * 16384 * 37);
  CHECK(layers.transient > selective.transient);
  work.sharers = 4;
  const TrainingMemory shared = training_memory(config, work);
  CHECK(shared.moments == layers.moments / 4);
  CHECK(shared.gradients == layers.gradients);
  CHECK(shared.sums == layers.gradients / 4);
  CHECK(layers.sums == 0);
}

TEST_CASE("ranks of a layout keep what they gather, and a share of the residual stream") {
  const ModelConfig config = shape("qwen3-4b");
  TrainingWork work = work_of(config);
  const TrainingMemory alone = training_memory(config, work);
  work.cp_size = 3;
  // Keys and values of two more ranks, 8 heads of 128.
  CHECK(training_memory(config, work).activations - alone.activations == uint64_t{2} * 2 * 2 * 1024 * 16384 * 36);
  work.cp_size = 1;
  work.reference = true;
  CHECK(training_memory(config, work).weights == 2 * alone.weights);
  CHECK(training_memory(config, work).gradients == alone.gradients);
  work.reference = false;
  work.tp_size = 2;
  // For a token of a layer: half of two sums of the stream, of q, k, v (twice q and k), of the attention's result with
  // its sums, and of gate and up; two whole norms' results. Then the stream into the last layer.
  const uint64_t of_layer = 2 * (2560 + (2048 + 2 * 512) + (2048 + 512) + 2048 + 9728 + 2 * 2560) + 4 * 16 + 8;
  CHECK(training_memory(config, work).activations == (of_layer * 36 + 2 * 1280) * 16384);
}

TEST_CASE("float32 weights are their own master") {
  const ModelConfig config = shape("qwen3-4b");
  TrainingWork work = work_of(config);
  work.dtype = tensor::DType::f32;
  const TrainingMemory memory = training_memory(config, work);
  CHECK(memory.master == 0);
  CHECK(memory.gradients == memory.weights);
  CHECK(memory.moments == 2 * memory.weights);
}
