#include "sweep/jobs.hpp"

#include <doctest/doctest.h>

#include "arch/shapes.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

SweepPlan plan_on(uint64_t memory_bytes, const std::string& device) {
  SweepRequest request;
  request.only.num_gpus = 2;
  SweepPlan plan = plan_sweep(request, "0123456789abcdef");
  plan.settings.device = device;
  plan.machine.gpus.resize(8);
  for (devices::Gpu& gpu : plan.machine.gpus) gpu.memory_bytes = memory_bytes;
  return plan;
}

}  // namespace

TEST_CASE("on the CPU legs run one after another, on GPUs as many as fit, up to four") {
  const uint64_t gib = uint64_t{1} << 30;
  CHECK(default_jobs(plan_on(141 * gib, "cpu")) == 1);
  CHECK(default_jobs(plan_on(141 * gib, "cuda")) == 4);
  SweepPlan plan = plan_on(141 * gib, "cuda");
  const uint64_t leg = leg_bytes(plan);
  CHECK(leg > 4 * gib);                             // processes take room, whatever the model is
  plan.machine.gpus[3].memory_bytes = leg * 5 / 2;  // the smallest decides
  CHECK(default_jobs(plan) == 2);
  plan.machine.gpus[3].memory_bytes = leg / 2;
  CHECK(default_jobs(plan) == 1);
  SweepPlan shared = plan_on(141 * gib, "cuda");
  shared.settings.devices_per_gpu = 2;
  CHECK(default_jobs(shared) == 1);
}

TEST_CASE("a leg of the Qwen3-0.6B shape takes what its parts take") {
  SweepPlan plan = plan_on(0, "cuda");
  plan.prepared.config = arch::shape("qwen3-0.6b");
  plan.prepared.spec.trainer.dtype = plan.settings.dtype = "bfloat16";
  const double billion = 1e9, parameters = 0.596;
  // Weights twice with those of the reference, and the engine's; gradients, what they are summed into, a master and two
  // moments.
  const double least = parameters * billion * (2 + 2 + 2 + 4 + 4 + 4 + 8);
  CHECK(static_cast<double>(leg_bytes(plan)) > least);
  CHECK(static_cast<double>(leg_bytes(plan)) < least + 12 * billion);
}

TEST_CASE("legs go where there are fewest, and free their devices again") {
  BusyDevices busy(8);
  CHECK(busy.take(4) == 0);
  CHECK(busy.take(4) == 4);
  CHECK(busy.take(8) == 0);
  CHECK(busy.take(2) == 0);
  CHECK(busy.take(2) == 2);
  busy.give_back(4, 4);
  CHECK(busy.take(4) == 4);
  busy.give_back(0, 4);
  busy.give_back(0, 2);
  busy.give_back(2, 2);
  CHECK(busy.take(2) == 0);
  CHECK(busy.take(2) == 2);
}

TEST_CASE("virtual devices are not counted") {
  BusyDevices none(0);
  CHECK(none.take(8) == 0);
  none.give_back(0, 8);
  BusyDevices few(2);
  CHECK(few.take(4) == 0);
}

TEST_CASE("a leg is prepared for the devices that it was given") {
  SweepRequest request;
  request.only.num_gpus = 2;
  SweepPlan plan = plan_sweep(request, "0123456789abcdef");
  plan.settings.device = "cuda";
  for (int i = 0; i < 8; ++i) plan.settings.device_uuids.push_back("0000000" + std::to_string(i) + "-0-0-0-0");
  const loop::Prepared prepared = prepare_leg(plan, plan.legs.front(), true, "/", 4);
  CHECK(prepared.spec.placement.device_uuids ==
        std::vector<std::string>{plan.settings.device_uuids[4], plan.settings.device_uuids[5]});
}
