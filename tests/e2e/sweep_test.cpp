// vime check-parallel as a user runs it: legs that pass, and planted faults of parallel training and of pushes, each of
// which some leg has to find and to name the place of.
#include <doctest/doctest.h>

#include <csignal>
#include <thread>

#include "base/deadline.hpp"
#include "run_binary.hpp"
#include "run_files.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

constexpr auto kLong = std::chrono::seconds(240);

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Swept {
  Outcome outcome;
  Json result;  // what --json wrote; null where there is none
};

Swept sweep(const fs::path& folder, std::vector<std::string> arguments, const std::string& fault = "") {
  arguments.insert(arguments.begin(), {vime_binary(), "check-parallel", "sweep"});
  arguments.insert(arguments.end(), {"--json", (folder / "out.json").string(), "--run-dir", (folder / "run").string()});
  std::vector<std::string> env;
  if (!fault.empty()) {
    env = {std::string("VIME_WORKER_MODULE=") + VIME_BIN_DIR + "/libvime_worker_planted.so", "VIME_PLANTED=" + fault};
  }
  Swept swept;
  swept.outcome = Program(arguments, env).wait(kLong);
  std::error_code ignored;
  if (fs::exists(folder / "out.json", ignored)) swept.result = read_json(folder / "out.json");
  return swept;
}

std::string failures_of(const Json& leg) {
  std::string text;
  for (const Json& failure : leg.at("failures")) text += failure.get<std::string>() + "\n";
  return text;
}

// One leg under a planted fault has to fail: in `check`, unless that is empty and the leg ends before, and with all of
// `says` in what it reports. Returns the leg.
Json find_fault(const std::string& fault, const std::string& only, const std::string& check,
                const std::vector<std::string>& says) {
  const TempDir folder;
  const Swept swept =
      sweep(folder.path(),
            {"--only", only + ",loss=sample_mean", "--set", "weight_sync.update_weight_buffer_size=64KiB", "--set",
             "weight_sync.timeout=20s", "--set", "trainer.timeout=20s"},
            fault);
  CAPTURE(swept.outcome.out);
  CAPTURE(swept.outcome.err);
  CHECK(swept.outcome.status == 3);
  REQUIRE(swept.result.is_object());
  REQUIRE(swept.result.at("legs").size() == 1);
  Json leg = swept.result.at("legs").at(0);
  CHECK(leg.at("status") == "fail");
  if (!check.empty()) CHECK(leg.at("checks").at(check).at("status") == "fail");
  const std::string failures = failures_of(leg);
  CAPTURE(failures);
  for (const std::string& part : says) CHECK(contains(failures, part));
  CHECK(contains(swept.outcome.out, "1 failed"));
  return leg;
}

// The first Ctrl-C while legs are running.
void interrupt_sweep(const std::string& jobs) {
  const TempDir folder;
  Program program({vime_binary(), "check-parallel", "sweep", "--num-gpus", "2", "--jobs", jobs, "--json",
                   (folder.path() / "out.json").string(), "--run-dir", (folder.path() / "run").string()});
  const Deadline deadline(std::chrono::seconds(120));
  const auto begun = [&] {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder.path() / "run", ignored)) {
      if (entry.path().filename().string().starts_with("2gpus")) return true;
    }
    return false;
  };
  while (!begun() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program.send_signal(SIGINT);
  const Outcome outcome = program.wait(kLong);
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.status == 130);
  const Json result = read_json(folder.path() / "out.json");
  CHECK(result.at("status") == "interrupted");
  CHECK(result.at("legs").size() == 8);
  CHECK(result.at("legs").back().at("status") == "not_run");
  CHECK(contains(outcome.out, "not run: "));
}

}  // namespace

TEST_CASE("legs of every dimension pass on both losses, and say how close it was") {
  const TempDir folder;
  const Swept swept = sweep(folder.path(), {"--num-gpus", "8", "--tp", "2", "--pp", "2", "--cp", "1,2"});
  CAPTURE(swept.outcome.out);
  CAPTURE(swept.outcome.err);
  CHECK(swept.outcome.status == 0);
  REQUIRE(swept.result.is_object());
  CHECK(swept.result.at("status") == "pass");
  REQUIRE(swept.result.at("legs").size() == 4);
  for (const Json& leg : swept.result.at("legs")) {
    CHECK(leg.at("status") == "pass");
    for (const char* name : {"coverage", "grad_norm", "gradients", "loss", "logprobs", "weights", "versions",
                             "contents", "engine_logprobs"}) {
      CAPTURE(name);
      REQUIRE(leg.at("checks").contains(name));
      CHECK(leg.at("checks").at(name).at("status") == "pass");
    }
    // Another order of summation shows: an error of exactly 0 would mean that nothing was compared.
    CHECK(leg.at("checks").at("gradients").at("error").get<double>() > 0.0);
    CHECK(leg.at("checks").at("engine_logprobs").at("error").get<double>() > 0.0);
  }
}

TEST_CASE("legs side by side give the figures that they give one after another, in the order of the plan") {
  const std::vector<std::string> legs = {"--num-gpus", "2", "--cp", "1"};
  const TempDir one, two;
  const Swept alone = sweep(one.path(), legs);
  std::vector<std::string> in_pairs = legs;
  in_pairs.insert(in_pairs.end(), {"--jobs", "3"});
  const Swept beside = sweep(two.path(), in_pairs);
  CAPTURE(beside.outcome.out);
  CAPTURE(beside.outcome.err);
  CHECK(beside.outcome.status == 0);
  CHECK(contains(beside.outcome.out, "3 legs at a time"));
  REQUIRE(beside.result.is_object());
  CHECK(alone.result.at("jobs") == 1);
  CHECK(beside.result.at("jobs") == 3);
  REQUIRE(beside.result.at("legs").size() == 6);
  for (size_t i = 0; i < 6; ++i) {
    for (const char* key : {"num_gpus", "tp", "pp", "cp", "dp", "loss", "status", "checks"}) {
      CAPTURE(key);
      CHECK(beside.result.at("legs").at(i).at(key) == alone.result.at("legs").at(i).at(key));
    }
  }
  // What they were held against is gone, and each has a folder of its own.
  size_t folders = 0;
  for (const auto& entry : fs::directory_iterator(two.path() / "run")) {
    folders += entry.path().filename().string().starts_with("2gpus") ? 1 : 0;
  }
  CHECK(folders == 6);
  CHECK_FALSE(fs::exists(two.path() / "run/baseline-sample_mean/steps"));
  CHECK(fs::exists(two.path() / "run/baseline-sample_mean/logs"));
}

TEST_CASE("planted.of legs side by side the one that is wrong fails, and the others pass") {
  const TempDir folder;
  const Swept swept =
      sweep(folder.path(), {"--only", "num_gpus=2,loss=sample_mean", "--jobs", "4", "--set", "trainer.timeout=60s"},
            "sign_flip");
  CAPTURE(swept.outcome.out);
  CAPTURE(swept.outcome.err);
  CHECK(swept.outcome.status == 3);
  REQUIRE(swept.result.is_object());
  REQUIRE(swept.result.at("legs").size() == 4);
  for (const Json& leg : swept.result.at("legs")) {
    CHECK(leg.at("status") == (leg.at("tp") == 2 ? "fail" : "pass"));
    if (leg.at("tp") == 2) CHECK(contains(failures_of(leg), "model.layers.1.mlp.up_proj.weight differs on rank 1"));
  }
}

TEST_CASE("planted.a missing all-reduce over tensor-parallel ranks shows in the log-probs of the first step") {
  find_fault("missing_all_reduce", "num_gpus=2,tp=2", "logprobs", {"step 1", "rank 0 (tp 0", "log-prob"});
}

TEST_CASE("planted.a sign that is flipped in one shard is found, though no norm sees it") {
  const Json leg = find_fault("sign_flip", "num_gpus=2,tp=2", "gradients",
                              {"model.layers.1.mlp.up_proj.weight differs on rank 1 (tp 1"});
  CHECK(leg.at("checks").at("grad_norm").at("status") == "pass");
}

TEST_CASE("planted.gate and up exchanged on one rank are found where they are") {
  find_fault("swapped_gate_up", "num_gpus=2,tp=2", "gradients",
             {"step 1, rank 1 (tp 1, pp 0, cp 0, dp 0), model.layers.", ".mlp."});
}

TEST_CASE("planted.a gradient that is not scaled by CP is found by its factor") {
  find_fault("cp_unscaled", "num_gpus=2,cp=2", "gradients", {"relative error 1", "rank 0 (tp 0, pp 0, cp 0"});
}

TEST_CASE("planted.a reward on the wrong token under context parallelism is found") {
  find_fault("cp_wrong_token", "num_gpus=2,cp=2", "gradients", {"step 1: gradient of", "rank 0"});
}

TEST_CASE("planted.a tied embedding that is counted twice is found, and it alone is named first") {
  find_fault("tied_twice", "num_gpus=2,pp=2", "gradients", {"gradient of model.embed_tokens.weight differs on rank 0"});
}

TEST_CASE("planted.a stage whose tensors are dropped from a push is refused by the engine") {
  find_fault("dropped_stage", "num_gpus=2,pp=2", "", {"model.layers.3."});
}

TEST_CASE("planted.one engine that is left on old weights is found by its contents") {
  find_fault("one_stale_engine", "num_gpus=4,tp=2,pp=1,cp=1", "contents", {"step 2", "engine 1: contents differ"});
}

TEST_CASE("planted.a finish after a transfer that failed is not taken for a push") {
  find_fault("lost_update", "num_gpus=2,tp=2", "",
             {"engine 0", "1 of ", "parameters were not sent since start_weight_update"});
}

TEST_CASE("planted.a push that never sets its version is found by what the engine says") {
  find_fault("version_never_set", "num_gpus=2,tp=2", "versions",
             {"step 1", "engine 0: weight version mismatch: expected 1"});
}

TEST_CASE("planted.a leader chosen by the tensor-parallel rank fails the leg") {
  find_fault("leader_by_tp_rank", "num_gpus=2,dp=2", "", {"engine 0"});
}

TEST_CASE("planted.handles gathered over the tensor-parallel group fail the leg") {
  find_fault("handles_over_tp", "num_gpus=2,dp=2", "", {"handles of 1 ranks, expected 2"});
}

TEST_CASE("planted.an engine that computes other log-probs from the right weights is found") {
  find_fault("logprob_gap", "num_gpus=2,tp=2", "engine_logprobs", {"step 1, engine 0, sample"});
}

TEST_CASE("a sweep that is interrupted reports the legs that it finished, leaves nothing running and exits with 130") {
  interrupt_sweep("1");
}

TEST_CASE("so does one whose legs run side by side") {
  interrupt_sweep("3");
}

TEST_CASE("the plan of a sweep lists 66 legs at once and starts nothing, and what cannot be swept is refused") {
  const Outcome plan = run_vime({"check-parallel", "plan"});
  CHECK(plan.status == 0);
  CHECK(contains(plan.out, "66 legs, and 2 baselines"));
  CHECK(plan.seconds < 5);
  const Outcome none = run_vime({"check-parallel", "sweep", "--only", "tp=3"});
  CHECK(none.status == 2);
  const Outcome cuda = run_vime({"check-parallel", "sweep", "--device", "cuda"});
  CHECK(cuda.status == 2);
  CHECK(contains(cuda.err, "cuda"));
  const Outcome layers = run_vime({"check-parallel", "sweep", "--num-gpus", "8", "--pp", "8"});
  CHECK(layers.status == 2);
  CHECK(contains(layers.err, "--pp 8: 5 layers cannot be cut into 8 pipeline stages"));
  const Outcome shipped = run_vime({"check-parallel", "plan", VIME_SOURCE_DIR "/configs/quickstart.yaml"});
  CHECK(shipped.status == 0);
  CHECK(contains(shipped.out, "PP 4 (2 layers)"));
  const Outcome own = run_vime({"check-parallel", "sweep", "--set", "trainer.lr=0.1"});
  CHECK(own.status == 2);
  CHECK(contains(own.err, "trainer.lr"));
  for (const char* number : {"0", "-1", "1.5"}) {
    const Outcome engines = run_vime({"check-parallel", "sweep", "--rollout-num-gpus-per-engine", number});
    CHECK(engines.status == 2);
    CHECK(contains(engines.err, "expected a number from 1 to 4096, found \"" + std::string(number) + "\""));
  }
  const Outcome jobs = run_vime({"check-parallel", "sweep", "--jobs", "0"});
  CHECK(jobs.status == 2);
  CHECK(contains(jobs.err, "--jobs"));
  for (const char* file : {"", "/", "/dev/null", "/nowhere/out.json"}) {
    const Outcome json = run_vime({"check-parallel", "sweep", "--json", file});
    CHECK(json.status == 2);
    CHECK(contains(json.err, "--json"));
    CHECK(json.seconds < 5);
  }
}

TEST_CASE("an old result is gone once a sweep has begun, and the new one says what was swept") {
  const TempDir folder;
  const fs::path file = folder.path() / "out.json";
  write_file_atomic(file, "{\"status\": \"pass\"}");
  Program program({vime_binary(), "check-parallel", "sweep", "--num-gpus", "2", "--set", "seed=7", "--json",
                   file.string(), "--run-dir", (folder.path() / "run").string()});
  const Deadline deadline(std::chrono::seconds(120));
  while (fs::exists(file) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK_FALSE(fs::exists(file));
  program.send_signal(SIGINT);
  CHECK(program.wait(kLong).status == 130);
  const Json result = read_json(file);
  CHECK(result.at("status") == "interrupted");
  CHECK(result.at("vime").is_string());
  CHECK(result.at("started").get<std::string>().size() == 20);
  CHECK(result.at("config") == "");
  CHECK(result.at("set") == Json{"seed=7"});
  CHECK(result.at("seed") == 7);
  CHECK(result.at("rollout_num_gpus_per_engine") == 2);
  CHECK(result.at("device") == "cpu");
  CHECK(result.at("model") == "tiny-parallel");
}
