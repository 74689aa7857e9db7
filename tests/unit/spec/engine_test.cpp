// Engines that are vLLM servers: which keys go with which kind, and what is refused before anything starts.
#include <doctest/doctest.h>

#include <cstdlib>

#include "base/error.hpp"
#include "spec/load.hpp"
#include "spec/placement_request.hpp"
#include "spec_text.hpp"

using namespace vime::spec;
using vime::devices::Inventory;

namespace {

FindGpus gpus(int count) {
  return [count] {
    Inventory machine;
    for (int i = 0; i < count; ++i) {
      machine.gpus.push_back(
          {i, "0000000" + std::to_string(i) + "-1111-2222-3333-444444444444", "a GPU", uint64_t{80} << 30, 9, 0});
    }
    return machine;
  };
}

ExperimentSpec with(std::vector<std::string> overrides, int count = 0) {
  return parse(kSound, "spec.yaml", overrides, gpus(count));
}

std::string refused_with(const std::vector<std::string>& overrides, int count = 0) {
  try {
    with(overrides, count);
  } catch (const vime::Error& error) {
    return error.message();
  }
  return "";
}

const std::string kVllm = "engine.backend=vllm", kExternal = "engine.backend=external",
                  kApart = "placement.colocate=false";

std::string transport(const ExperimentSpec& spec, size_t engine = 0) {
  const vime::placement::Plan plan = vime::placement::make_plan(placement_request(spec, "run"));
  return transport_of(spec, plan.engines.at(engine));
}

}  // namespace

TEST_CASE("vLLM servers load folders on the CPU, and on GPUs get weights as vime's own engines do") {
  CHECK(transport(with({kVllm})) == "disk");
  CHECK(transport(with({kVllm, "placement.device=cuda", "placement.actor_num_gpus_per_node=1"}, 2)) == "cuda_ipc");
  CHECK(transport(with({kVllm, "placement.device=cuda", "placement.actor_num_gpus_per_node=1", kApart,
                        "placement.rollout_num_gpus=1"},
                       2)) == "nccl");
  CHECK(transport(with({"weight_sync.transport=disk"})) == "disk");
  CHECK(contains(refused_with({kVllm, "weight_sync.transport=shm"}),
                 "transport shm does not reach vLLM servers; use auto or disk"));
  CHECK(contains(refused_with({kVllm, "weight_sync.transport=cuda_ipc"}), "does not go with placement.device cpu"));
}

TEST_CASE("a vLLM server has longer to start, unless the spec says how long") {
  CHECK(with({}).engine.startup_timeout == std::chrono::minutes(2));
  CHECK(with({kVllm}).engine.startup_timeout == std::chrono::minutes(20));
  CHECK(with({kExternal, kApart, "placement.rollout_num_gpus=1", "engine.urls=[http://a:1]"}).engine.startup_timeout ==
        std::chrono::seconds(60));
  CHECK(with({kVllm, "engine.startup_timeout=30s"}).engine.startup_timeout == std::chrono::seconds(30));
}

TEST_CASE("keys of another kind of engine are refused, since they would not be used") {
  CHECK(contains(refused_with({"engine.vllm_args=[--enforce-eager]"}),
                 R"("engine.vllm_args" is given, but "engine.backend" is embedded)"));
  CHECK(contains(refused_with({kVllm, "engine.urls=[http://a:1]"}), R"("engine.urls" is given)"));
  CHECK(contains(refused_with({"engine.api_key_env=HOME"}), R"("engine.api_key_env" is given)"));
  CHECK(contains(refused_with({kVllm, "deterministic=true"}), "vime's own engine alone"));
}

TEST_CASE("flags that vime sets itself, and an environment that is none, are refused") {
  for (const char* flag : {"--port", "--dtype=float16", "-tp", "--weight-transfer-config", "--api_key", "--config"}) {
    CAPTURE(flag);
    CHECK(contains(refused_with({kVllm, std::string("engine.vllm_args=[") + flag + "]"}), "which vime sets itself"));
  }
  for (const char* flag : {"--data-parallel-size=2", "-dp", "--pipeline_parallel_size"}) {
    CAPTURE(flag);
    CHECK(
        contains(refused_with({kVllm, std::string("engine.vllm_args=[") + flag + "]"}), "rollout_num_gpus_per_engine"));
  }
  CHECK(refused_with({kVllm, "engine.vllm_args=[--enforce-eager, --attention-backend, TRITON_ATTN]"}).empty());
  CHECK(contains(refused_with({kVllm, "engine.env=[NOVALUE]"}), "expected NAME=value"));
  CHECK(contains(refused_with({kVllm, "engine.vllm_command=[]"}), "expected a program"));
  CHECK(contains(refused_with({kVllm, "engine.env=[HF_TOKEN=x]"}), "a secret"));
  CHECK(refused_with({kVllm, "engine.env=[A=1, B=]"}).empty());
}

TEST_CASE("external servers have an address each and devices of their own") {
  const std::vector<std::string> sound = {kExternal, kApart, "placement.rollout_num_gpus=2",
                                          "engine.urls=[http://127.0.0.1:1, http://localhost:2]"};
  CHECK(refused_with(sound).empty());
  CHECK(contains(refused_with({kExternal, kApart, "placement.rollout_num_gpus=2", "engine.urls=[http://a:1]"}),
                 "has 1 addresses, but there are 2 engines"));
  CHECK(contains(refused_with({kExternal, kApart, "placement.rollout_num_gpus=1", "engine.urls=[a:1]"}),
                 "expected http://host:port"));
  CHECK(contains(
      refused_with({kExternal, "placement.colocate=true", "placement.rollout_num_gpus=1", "engine.urls=[http://a:1]"}),
      "devices of their own"));
  CHECK(contains(
      refused_with({kExternal, kApart, "placement.rollout_num_gpus=2", "engine.urls=[http://a:1, http://a:1]"}),
      "twice"));
  CHECK(contains(refused_with({kExternal, kApart, "placement.rollout_num_gpus=1", "engine.urls=[http://far:1]",
                               "placement.device=cuda", "placement.actor_num_gpus_per_node=1"},
                              1),
                 "NCCL groups are made on one machine"));
  CHECK(refused_with({kExternal, kApart, "placement.rollout_num_gpus=1", "engine.urls=[http://far:1]",
                      "weight_sync.transport=disk", "placement.device=cuda", "placement.actor_num_gpus_per_node=1"},
                     1)
            .empty());
  // One GPU for the trainer is enough: those of the servers are not this machine's to give out.
  std::vector<std::string> on_gpu = sound;
  on_gpu.insert(on_gpu.end(), {"placement.device=cuda", "placement.actor_num_gpus_per_node=1"});
  const ExperimentSpec spec = with(on_gpu, 1);
  CHECK(spec.placement.nodes == std::vector<int64_t>{1, 2});
  CHECK(spec.placement.device_uuids.size() == 1);
  CHECK(transport(spec) == "nccl");
}

TEST_CASE("an API key is named by its environment variable, which must be there") {
  ::unsetenv("VIME_TEST_NO_SUCH_KEY");
  CHECK(contains(refused_with({kVllm, "engine.api_key_env=VIME_TEST_NO_SUCH_KEY"}), "no such environment variable"));
  ::setenv("VIME_TEST_KEY", "hush", 1);
  CHECK(refused_with({kVllm, "engine.api_key_env=VIME_TEST_KEY"}).empty());
}
