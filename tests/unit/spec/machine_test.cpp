#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "spec/load.hpp"
#include "spec/placement_request.hpp"
#include "spec/plan_view.hpp"
#include "spec/print.hpp"
#include "spec_text.hpp"

using namespace vime::spec;
using vime::devices::Inventory;

namespace {

std::string uuid(int number) {
  return "0000000" + std::to_string(number) + "-1111-2222-3333-444444444444";
}

FindGpus machine_with(int gpus) {
  return [gpus] {
    Inventory machine;
    for (int i = 0; i < gpus; ++i) machine.gpus.push_back({i, uuid(i), "a GPU", uint64_t{80} << 30, 9, 0});
    if (gpus == 0) machine.reason = "the drawer is empty";
    return machine;
  };
}

ExperimentSpec on(int gpus, const std::vector<std::string>& overrides) {
  std::vector<std::string> all{"placement.actor_num_gpus_per_node=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse(kSound, "spec.yaml", all, machine_with(gpus));
}

std::string refusal_on(int gpus, const std::vector<std::string>& overrides) {
  try {
    on(gpus, overrides);
  } catch (const vime::Error& error) {
    return error.message();
  }
  return "";
}

const std::string kAuto = "placement.device=auto", kCuda = "placement.device=cuda";

}  // namespace

TEST_CASE("auto takes GPUs where there are enough for the job, virtual devices otherwise") {
  CHECK(on(0, {kAuto}).placement.device == "cpu");
  CHECK(on(1, {kAuto}).placement.device == "cuda");
  CHECK(on(1, {kAuto, "placement.actor_num_gpus_per_node=2"}).placement.device == "cpu");
  CHECK(on(2, {kAuto, "placement.actor_num_gpus_per_node=2"}).placement.device == "cuda");
  CHECK(on(8, {"placement.device=cpu"}).placement.device == "cpu");
}

TEST_CASE("a machine is not asked for its GPUs when the spec says cpu") {
  const FindGpus never = []() -> Inventory { throw vime::Error(vime::ErrorKind::internal, "asked"); };
  CHECK_NOTHROW(parse(kSound, "spec.yaml", {"placement.device=cpu"}, never));
  CHECK_THROWS(parse(kSound, "spec.yaml", {kCuda}, never));
}

TEST_CASE("the GPUs are the first that the machine has, or those that are named") {
  const ExperimentSpec spec = on(4, {kCuda, "placement.actor_num_gpus_per_node=2"});
  CHECK(spec.placement.device_uuids == std::vector<std::string>{uuid(0), uuid(1)});
  const auto plan = vime::placement::make_plan(placement_request(spec, "run"));
  CHECK(plan.devices[1].uuid == uuid(1));
  const ExperimentSpec named = on(4, {kCuda, "placement.device_uuids=[" + uuid(3) + "]"});
  CHECK(vime::placement::make_plan(placement_request(named, "run")).devices[0].uuid == uuid(3));
}

TEST_CASE("what follows from GPUs: bfloat16, recomputation, offload beside a colocated engine, a wider gap") {
  const ExperimentSpec gpu = on(1, {kCuda, "placement.colocate=true"});
  CHECK(gpu.trainer.dtype == "bfloat16");
  CHECK(gpu.trainer.recompute_granularity == "selective");
  CHECK(gpu.offload.train);
  CHECK(gpu.offload.rollout);
  CHECK(gpu.ci.logprob_gap_tolerance == 0.02);
  CHECK(gpu.engine.gpu_memory_utilization == 0.6);
  const ExperimentSpec apart = on(2, {kCuda, "placement.colocate=false", "placement.rollout_num_gpus=1"});
  CHECK_FALSE(apart.offload.train);
  CHECK(apart.engine.gpu_memory_utilization == 0.9);
  const ExperimentSpec cpu = on(1, {"placement.device=cpu"});
  CHECK(cpu.trainer.dtype == "float32");
  CHECK(cpu.trainer.recompute_granularity == "none");
  CHECK_FALSE(cpu.offload.train);
  CHECK(on(1, {kCuda, "trainer.dtype=float32"}).ci.logprob_gap_tolerance == 1e-4);
}

TEST_CASE("weights go to colocated engines by CUDA IPC and to others by NCCL") {
  const ExperimentSpec gpu =
      on(3, {kCuda, "placement.colocate=true", "placement.actor_num_gpus_per_node=2", "placement.rollout_num_gpus=3"});
  const auto plan = vime::placement::make_plan(placement_request(gpu, "run"));
  REQUIRE(plan.engines.size() == 3);
  CHECK(transport_of(gpu, plan.engines[0]) == "cuda_ipc");
  CHECK(route_of(gpu, plan.engines[0]) == Route::memory);
  CHECK(transport_of(gpu, plan.engines[2]) == "nccl");
  CHECK(route_of(gpu, plan.engines[2]) == Route::network);
}

TEST_CASE("a resolved spec for GPUs reads back as it is") {
  const ExperimentSpec spec = on(2, {kCuda, "placement.colocate=true", "placement.actor_num_gpus_per_node=2"});
  CHECK(parse(to_yaml(spec), "resolved.yaml", {}, machine_with(2)) == spec);
  CHECK(read_resolved(to_yaml(spec), "resolved.yaml") == spec);
}

TEST_CASE("GPUs that are not there are refused, with the reason or the numbers") {
  CHECK(contains(refusal_on(0, {kCuda}), "placement.device is cuda, but the drawer is empty"));
  CHECK(contains(refusal_on(1, {kCuda, "placement.actor_num_gpus_per_node=2"}),
                 "2 GPUs are needed (trainer 2, engines behind it 0), this machine has 1"));
  CHECK(contains(refusal_on(8, {kCuda, "placement.nodes=[1, 1]"}), "GPUs are driven on one machine in this version"));
  CHECK(contains(refusal_on(2, {kCuda, "placement.device_uuids=[" + uuid(7) + "]"}),
                 "no GPU of this machine has the UUID \"" + uuid(7) + "\"; it has " + uuid(0) + ", " + uuid(1)));
  CHECK(contains(refusal_on(2, {kCuda, "placement.device_uuids=[" + uuid(1) + ", " + uuid(1) + "]",
                                "placement.actor_num_gpus_per_node=2"}),
                 "is there twice"));
  CHECK(contains(
      refusal_on(2, {kCuda, "placement.device_uuids=[" + uuid(1) + "]", "placement.actor_num_gpus_per_node=2"}),
      "expected a UUID for each of 2 devices, found 1"));
}

TEST_CASE("several devices share a GPU where the spec says so, as few on each as can be") {
  const std::string four = "placement.actor_num_gpus_per_node=4", two_each = "placement.devices_per_gpu=2";
  const ExperimentSpec spec = on(2, {kCuda, four, two_each});
  CHECK(spec.placement.device_uuids ==
        std::vector<std::string>{uuid(0) + "/0of2", uuid(1) + "/0of2", uuid(0) + "/1of2", uuid(1) + "/1of2"});
  CHECK(parse(to_yaml(spec), "resolved.yaml", {}, machine_with(2)) == spec);
  const auto plan = vime::placement::make_plan(placement_request(spec, "run"));
  CHECK(contains(plan_table(spec, plan, std::nullopt, 10), "4 devices, up to 2 on each GPU, on 1 node"));
  CHECK(plan_json(spec, plan, std::nullopt, true)["devices_per_gpu"] == 2);
  CHECK(on(1, {kAuto, four, "placement.devices_per_gpu=4"}).placement.device == "cuda");
  CHECK(on(1, {kAuto, four}).placement.device == "cpu");
  const ExperimentSpec named = on(2, {kCuda, "placement.device_uuids=[" + uuid(1) + "/1of2]", two_each});
  CHECK(named.placement.device_uuids == std::vector<std::string>{uuid(1) + "/1of2"});
}

TEST_CASE("shares that are not there, or that cannot be used, are refused") {
  const std::string four = "placement.actor_num_gpus_per_node=4", two_each = "placement.devices_per_gpu=2";
  CHECK(contains(refusal_on(1, {kCuda, four}),
                 "this machine has 1 GPU; with placement.devices_per_gpu 4 they share GPUs"));
  CHECK(contains(refusal_on(1, {kCuda, four, two_each}),
                 "4 devices are needed (trainer 4, engines behind it 0), this machine has 1 GPU for 2 devices; with "
                 "placement.devices_per_gpu 4 they share GPUs"));
  CHECK_FALSE(contains(refusal_on(1, {kCuda, "placement.actor_num_gpus_per_node=65"}), "devices_per_gpu"));
  CHECK(contains(refusal_on(1, {kCuda, "placement.device_uuids=[" + uuid(0) + "]", two_each}),
                 "no share of a GPU of this machine has the UUID \"" + uuid(0) + "\"; it has " + uuid(0) + "/0of2, " +
                     uuid(0) + "/1of2"));
  for (const std::string backend : {"vllm", "external"}) {
    CHECK(
        contains(refusal_on(1, {kCuda, four, two_each, "engine.backend=" + backend, "placement.colocate=false",
                                "placement.rollout_num_gpus=1"}),
                 "\"placement.devices_per_gpu\" is 2, which goes with engine.backend embedded only, found " + backend));
  }
  CHECK_FALSE(contains(refusal_on(1, {kCuda, four, "engine.backend=vllm"}), "devices_per_gpu"));
  CHECK(contains(refusal_on(0, {kCuda, two_each}), "placement.device is cuda, but the drawer is empty"));
  for (const char* none : {"placement.devices_per_gpu=0", "placement.devices_per_gpu=65"}) {
    for (const std::string& device : {kAuto, kCuda}) {
      CHECK(contains(refusal_on(1, {device, four, none}), "must be an integer from 1 to 64"));
    }
  }
}

TEST_CASE("what is refused because auto took the CPU says why it did") {
  const std::string two = "placement.actor_num_gpus_per_node=2";
  const std::string few = "; placement.device auto took the CPU: this machine has 1 GPU, 2 are needed";
  for (const char* other : {"trainer.dtype=bfloat16", "trainer.recompute_granularity=full", "offload.train=true",
                            "weight_sync.transport=cuda_ipc", "weight_sync.transport=nccl"}) {
    CAPTURE(other);
    CHECK(contains(refusal_on(1, {kAuto, two, other}), few));
    CHECK(contains(refusal_on(0, {kAuto, two, other}), "; placement.device auto took the CPU: the drawer is empty"));
    CHECK_FALSE(contains(refusal_on(1, {"placement.device=cpu", two, other}), "auto took"));
  }
  CHECK(contains(refusal_on(4, {kAuto, "placement.nodes=[1, 1]", two, "trainer.dtype=bfloat16"}),
                 "auto took the CPU: GPUs are driven on one machine in this version, the job has 2 nodes"));
  CHECK(contains(refusal_on(2, {kAuto, "placement.actor_num_gpus_per_node=3", "trainer.dtype=bfloat16"}),
                 "this machine has 2 GPUs, 3 are needed"));
}

TEST_CASE("what goes with one kind of device is refused on the other") {
  CHECK(contains(refusal_on(0, {"placement.device=cpu", "trainer.dtype=bfloat16"}), "training is in float32"));
  for (const std::string& other :
       {std::string("trainer.recompute_granularity=full"), std::string("offload.train=true"),
        std::string("offload.rollout=true"), std::string("engine.gpu_memory_utilization=0.5"),
        std::string("placement.devices_per_gpu=2"), "placement.device_uuids=[" + uuid(0) + "]"}) {
    CAPTURE(other);
    CHECK(contains(refusal_on(0, {"placement.device=cpu", other}), "where it has no meaning"));
  }
  CHECK(contains(refusal_on(1, {kCuda, "weight_sync.transport=shm"}), "use auto, cuda_ipc, nccl or disk"));
  CHECK(contains(refusal_on(1, {"placement.device=cpu", "weight_sync.transport=nccl"}), "use auto, shm, tcp or disk"));
  CHECK(contains(refusal_on(1, {kCuda, "placement.colocate=true", "weight_sync.transport=nccl"}),
                 "needs engines on GPUs of their own, but 1 of 1 engines share theirs with the trainer"));
  CHECK(
      contains(refusal_on(2, {kCuda, "placement.colocate=false", "placement.rollout_num_gpus=1", "offload.train=true"}),
               "but colocate is false"));
}
