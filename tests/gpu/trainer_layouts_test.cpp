// Two GPUs, or four, compute what one does, however the work is cut. Ranks are threads here, each with a GPU of its
// own.
#include "torch_doctest.hpp"

#include <future>
#include <mutex>

#include "gpu/device.hpp"
#include "unit/trainer/layouts.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

// A rank's whole life is on its thread, since the GPU is the thread's.
void run_rank(RankOptions options, std::promise<uint16_t>& port, std::shared_future<uint16_t> meeting,
              const std::function<void(TrainerRank&)>& body) {
  TrainerRank rank(options);
  if (options.rank == 0) port.set_value(rank.meeting_port());
  rank.setup("127.0.0.1", meeting.get());
  try {
    body(rank);
  } catch (const std::exception& error) {
    rank.leave(error.what());
    throw;
  }
}

// against: the file of a single rank's step; "" = the folder gets one.
StepOfTest train_once(RankOptions options, tensor::DType dtype, const fs::path& folder,
                      const std::string& against = "") {
  options.device = "cuda";
  options.dtype = dtype;
  for (size_t i = 0; i < options.plan.devices.size(); ++i) {
    options.plan.devices[i].uuid = gpu::device_uuid(static_cast<int>(i));
  }
  const fs::path path = folder / "batch.safetensors";
  rollout::write_train_batch(path, parallel_batch());
  rollout::StepProbe probe;
  (against.empty() ? probe.write : probe.against) = against.empty() ? (folder / "step").string() : against;
  StepOfTest trained;
  std::mutex mutex;
  std::promise<uint16_t> port;
  const std::shared_future<uint16_t> meeting = port.get_future().share();
  std::vector<std::future<void>> ranks;
  for (size_t i = 0; i < options.plan.ranks.size(); ++i) {
    RankOptions own = options;
    own.rank = static_cast<int>(i);
    ranks.push_back(std::async(std::launch::async, [&, own] {
      run_rank(own, port, meeting, [&](TrainerRank& rank) {
        const auto [steps, answer] = rank.train(path, &probe);
        const std::lock_guard lock(mutex);
        trained.loss += steps.at(0).policy.terms.loss;
        trained.grad_norm = steps.at(0).grad_norm;
        trained.add(answer, rank.place());
      });
    }));
  }
  for (std::future<void>& rank : ranks) rank.get();
  return trained;
}

struct Case {
  LayoutOfTest layout;
  arch::Recompute recompute = arch::Recompute::none;
};

void hold_against_one(const std::vector<Case>& cases, bool tied, tensor::DType dtype, double bound) {
  const arch::ModelConfig config = parallel_config(tied);
  const TempDir folder;
  const StepOfTest one = train_once(options_of({}, config), dtype, folder.path());
  for (const Case& of : cases) {
    CAPTURE(of.layout.name());
    CAPTURE(static_cast<int>(of.recompute));
    RankOptions options = options_of(of.layout, config);
    options.recompute = of.recompute;
    const StepOfTest found = train_once(options, dtype, folder.path(), folder.path() / "step");
    CHECK(found.loss == doctest::Approx(one.loss).epsilon(bound));
    CHECK(found.grad_norm == doctest::Approx(one.grad_norm).epsilon(bound));
    CHECK(furthest_of(found, one, "grad.") < bound);
    CHECK(furthest_of(found, one, "weight.") < bound);
    CHECK(furthest_logprobs(found, one) < bound);
  }
}

const std::vector<Case> kOfTwo = {{{2, 1, 1, 1}},
                                  {{1, 2, 1, 1}},
                                  {{1, 1, 2, 1}},
                                  {{1, 1, 1, 2}},
                                  {{2, 1, 1, 1}, arch::Recompute::selective},
                                  {{2, 1, 1, 1}, arch::Recompute::full}};
const std::vector<Case> kOfFour = {{{2, 2, 1, 1}}, {{2, 1, 2, 1}}, {{1, 2, 1, 2}}, {{1, 1, 2, 2}}};

}  // namespace

// Sums of a few hundred float32 terms in another order.
TEST_CASE("two GPUs train as one does, in float32") {
  for (const bool tied : {true, false}) hold_against_one(kOfTwo, tied, tensor::DType::f32, 1e-4);
}

// Two cuts of the same work round differently: as far from each other as either is from float32.
TEST_CASE("two GPUs train as one does, in bf16") {
  for (const bool tied : {true, false}) hold_against_one(kOfTwo, tied, tensor::DType::bf16, 0.06);
}

TEST_CASE("four GPUs that cut the work in two ways at once train as one does" *
          doctest::skip(gpu::device_count() < 4)) {
  for (const bool tied : {true, false}) {
    hold_against_one(kOfFour, tied, tensor::DType::f32, 1e-4);
    hold_against_one(kOfFour, tied, tensor::DType::bf16, 0.06);
  }
}
