// Whole runs of the built binary: learning, verification, determinism, failures, and what is left behind.
#include <doctest/doctest.h>
#include <signal.h>

#include "base/strings.hpp"
#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

const milliseconds kLong{550000};

std::vector<std::string> run_arguments(const std::string& config, const fs::path& run_dir,
                                       const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {vime_binary(), "run", config, "--run-dir", run_dir.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// A short run of a shipped config: three rollouts, evaluated before and after.
Outcome short_run(const std::string& config, const fs::path& run_dir, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--set", "rollout.num_rollout=3"});
  return run_program(run_arguments(config, run_dir, more), kLong);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the quickstart learns to sort, with every push verified and nothing left behind") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const Outcome outcome = run_program(run_arguments(kQuickstart, run_dir, {"--ci-test"}), kLong);
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  const Json summary = read_json(run_dir / "summary.json");
  CHECK(summary.at("status") == "ok");
  CHECK(summary.at("exit_status") == 0);
  CHECK(summary.at("steps") == 200);
  CHECK(summary.at("weight_version") == 201);
  CHECK(summary.at("error").is_null());
  const Json& score = summary.at("eval").at("sort_digits/heldout");
  CHECK(score.at("first").get<double>() < 0.05);
  CHECK(score.at("last").get<double>() >= 0.90);
  const std::vector<Json> metrics = read_lines(run_dir / "metrics.jsonl");
  REQUIRE(metrics.size() == 201);
  for (size_t i = 0; i < metrics.size(); ++i) {
    CHECK(metrics[i].at("step") == i);
    CHECK(metrics[i].at("weights/version") == i + 1);
    if (i == 0) continue;
    CHECK(metrics[i].at("train/ppo_kl").get<double>() == 0.0);
    CHECK(metrics[i].at("train/train_rollout_logprob_abs_diff").get<double>() < 1e-4);
  }
  CHECK(metrics.back().at("rollout/raw_reward").get<double>() > 0.8);
  for (const char* file : {"spec.yaml", "plan.json", "logs/latest/driver.log", "logs/latest/engine-0.log",
                           "logs/latest/trainer-1.log", "checkpoints/latest/model/config.json",
                           "checkpoints/latest/model/model.safetensors", "rollouts/rollout_000199.jsonl"}) {
    CAPTURE(file);
    CHECK(fs::exists(run_dir / file));
  }
  CHECK(contains(outcome.out, "reward (mean of each rollout)"));
  CHECK(contains(outcome.out, "every engine on weight version 201"));
  CHECK(all_gone(run_id_of(run_dir)));
}

TEST_CASE("the same spec and seed give the same metrics and bit-identical weights, another seed gives others") {
  const TempDir folder;
  REQUIRE(short_run(kQuickstart, folder.path() / "a").status == 0);
  REQUIRE(short_run(kQuickstart, folder.path() / "b").status == 0);
  REQUIRE(short_run(kQuickstart, folder.path() / "c", {"--set", "seed=4321"}).status == 0);
  const auto first = timeless_metrics(folder.path() / "a");
  REQUIRE(first.size() == 4);
  CHECK(first == timeless_metrics(folder.path() / "b"));
  CHECK(final_weights(folder.path() / "a") == final_weights(folder.path() / "b"));
  CHECK(first != timeless_metrics(folder.path() / "c"));
  CHECK(final_weights(folder.path() / "a") != final_weights(folder.path() / "c"));
}

TEST_CASE("engines on devices of their own end bit-identical to colocated ones") {
  const TempDir folder;
  REQUIRE(short_run(kQuickstart, folder.path() / "colocated").status == 0);
  const Outcome outcome = short_run(kDisaggregated, folder.path() / "apart", {"--ci-test"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  // Content checksums were compared on every push of both runs, so equal trainer weights and log-probs mean equal
  // engines.
  CHECK(timeless_metrics(folder.path() / "colocated") == timeless_metrics(folder.path() / "apart"));
  CHECK(final_weights(folder.path() / "colocated") == final_weights(folder.path() / "apart"));
  CHECK(read_file(folder.path() / "colocated/rollouts/rollout_000002.jsonl").size() > 10000);
}

TEST_CASE("a run in a layout pushes to engines on its devices and on others, and goes on under another layout") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  const auto run = [&](std::vector<std::string> sets) {
    std::vector<std::string> arguments = run_arguments(kQuickstart, run_dir, {"--ci-test"});
    // Four trainer devices; engines 0 and 1 lie on them, 2 and 3 behind them.
    sets.insert(sets.end(), {"placement.nodes=[8]", "placement.actor_num_gpus_per_node=4",
                             "placement.rollout_num_gpus=8", "placement.rollout_num_gpus_per_engine=2",
                             "eval.num_samples=16", "weight_sync.update_weight_buffer_size=64KiB"});
    for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return arguments;
  };
  const Outcome first = run_program(
      run({"rollout.num_rollout=2", "trainer.tensor_model_parallel_size=2", "trainer.pipeline_model_parallel_size=2"}),
      kLong);
  CAPTURE(first.err);
  REQUIRE(first.status == 0);
  std::vector<std::string> again = run({"rollout.num_rollout=4", "trainer.context_parallel_size=2"});
  again.push_back("--resume");
  const Outcome second = run_program(again, kLong);
  CAPTURE(second.err);
  REQUIRE(second.status == 0);
  CHECK(contains(second.err, "trainer.tensor_model_parallel_size: 2 -> 1"));
  const std::vector<Json> metrics = read_lines(run_dir / "metrics.jsonl");
  REQUIRE(metrics.size() == 5);
  for (size_t i = 0; i < metrics.size(); ++i) CHECK(metrics[i].at("weights/version") == i + 1);

  // An optimizer of another kind knows nothing of the state that was saved: refused before anything starts.
  again.insert(again.end(), {"--set", "trainer.optimizer=sgd", "--set", "rollout.num_rollout=5"});
  const Outcome other = run_program(again, kLong);
  CHECK(other.status == 2);
  CHECK(contains(other.err, "its optimizer is adam, now it is sgd"));
}

TEST_CASE("planted.what only a self-check can see ends a run with status 3 under ci_test and is a warning otherwise") {
  struct Fault {
    const char* name;
    const char* found_by;
  };
  // Weights that are not the trainer's are found by their checksums; a wrong log-prob by the trainer's own.
  for (const Fault fault :
       {Fault{"stale_weights", "contents of version 2 differ"}, Fault{"wrong_tensor", "contents of version 1 differ"},
        Fault{"logprob_gap", "trainer and engine disagree"}}) {
    CAPTURE(fault.name);
    const TempDir folder;
    const std::vector<std::string> env = {
        std::string("VIME_WORKER_MODULE=") + VIME_BIN_DIR + "/libvime_worker_planted.so",
        std::string("VIME_PLANTED=") + fault.name};
    const auto planted_run = [&](const fs::path& run_dir, const std::string& ci_test) {
      return Program(run_arguments(kQuickstart, run_dir,
                                   {"--set", "rollout.num_rollout=3", "--set", "ci_test=" + ci_test, "--set",
                                    "ci.logprob_gap_tolerance=2.0e-4"}),
                     env)
          .wait(kLong);
    };
    const Outcome checked = planted_run(folder.path() / "checked", "true");
    CAPTURE(checked.err);
    CHECK(checked.status == 3);
    CHECK(contains(checked.err, fault.found_by));
    CHECK(read_json(folder.path() / "checked/summary.json").at("error").at("kind") == "check_failed");
    const Outcome unchecked = planted_run(folder.path() / "unchecked", "false");
    CHECK(unchecked.status == 0);
    if (std::string(fault.name) == "logprob_gap") CHECK(contains(unchecked.err, fault.found_by));
  }
}

TEST_CASE("gradients that are not finite end a run with status 3 and leave the weights alone") {
  const TempDir folder;
  const Outcome outcome = short_run(kQuickstart, folder.path() / "run", {"--set", "trainer.lr=1.0e+30", "--ci-test"});
  CAPTURE(outcome.err);
  CHECK(outcome.status == 3);
  const Json summary = read_json(folder.path() / "run/summary.json");
  CHECK(summary.at("status") == "failed");
  CHECK(summary.at("error").at("kind") == "check_failed");
  CHECK(contains(outcome.err, "not finite"));
}

TEST_CASE("a run directory that holds a run is refused and left as it is") {
  const TempDir folder;
  write_file_atomic(folder.path() / "spec.yaml", "name: mine\n");
  const Outcome outcome = short_run(kQuickstart, folder.path());
  CHECK(outcome.status == 2);
  CHECK(contains(outcome.err, "already holds a run"));
  CHECK(read_file(folder.path() / "spec.yaml") == "name: mine\n");
}

TEST_CASE("two runs of one spec at the same time do not disturb each other") {
  const TempDir folder;
  Program first(run_arguments(kQuickstart, folder.path() / "a", {"--set", "rollout.num_rollout=3"}));
  Program second(run_arguments(kQuickstart, folder.path() / "b", {"--set", "rollout.num_rollout=3"}));
  CHECK(first.wait(kLong).status == 0);
  CHECK(second.wait(kLong).status == 0);
  CHECK(final_weights(folder.path() / "a") == final_weights(folder.path() / "b"));
}

TEST_CASE("the first Ctrl-C ends a run cleanly with a checkpoint and status 130") {
  const TempDir folder;
  const fs::path run_dir = folder.path() / "run";
  Program program(run_arguments(kQuickstart, run_dir));
  wait_for_steps(run_dir, 3);
  const std::string run_id = run_id_of(run_dir);
  CHECK(processes_of(run_id).size() >= 5);  // agent, two trainer ranks, engine and its workers
  program.send_signal(SIGINT);
  const Outcome outcome = program.wait(milliseconds(30000));
  CAPTURE(outcome.err);
  CHECK(outcome.status == 130);
  CHECK(all_gone(run_id));
  const Json summary = read_json(run_dir / "summary.json");
  CHECK(summary.at("status") == "interrupted");
  CHECK(fs::exists(run_dir / "checkpoints/latest/model/model.safetensors"));
}

TEST_CASE("after kill -9 or SIGHUP of the driver no process of the run is left within 5 seconds") {
  for (const int signal : {SIGKILL, SIGHUP}) {
    CAPTURE(signal);
    const TempDir folder;
    const fs::path run_dir = folder.path() / "run";
    Program program(run_arguments(kQuickstart, run_dir));
    wait_for_steps(run_dir, 1);
    const std::string run_id = run_id_of(run_dir);
    program.send_signal(signal);
    program.wait(milliseconds(30000));
    CHECK(all_gone(run_id));
  }
}

TEST_CASE("the death of any process ends the run with its name, its signal and the end of its log") {
  for (const std::string title : {"vime trainer 1", "vime engine", "vime agent"}) {
    CAPTURE(title);
    const TempDir folder;
    const fs::path run_dir = folder.path() / "run";
    Program program(run_arguments(kQuickstart, run_dir));
    wait_for_steps(run_dir, 1);
    const std::string run_id = run_id_of(run_dir);
    REQUIRE(::kill(find_process(run_id, title), SIGKILL) == 0);
    const Outcome outcome = program.wait(milliseconds(30000));
    CAPTURE(outcome.err);
    CHECK(outcome.status == 4);
    CHECK(all_gone(run_id));
    CHECK(read_json(run_dir / "summary.json").at("exit_status") == 4);
    if (title == "vime trainer 1") {
      CHECK(contains(outcome.err, "trainer-1 was killed by signal 9"));
      CHECK(contains(outcome.err, "trainer-1.log"));
    }
  }
}
