// Whole runs against servers that behave as vLLM's do, fault by fault: what a client gets wrong there would get wrong
// weights into a real one.
#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "base/strings.hpp"
#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"
#include "http/client.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

const std::string kConfig = VIME_SOURCE_DIR "/configs/vllm-cpu.yaml";
const std::string kServer = VIME_BIN_DIR "/stand_in/vllm";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> arguments(const fs::path& run_dir, const std::string& server_env,
                                   const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> words = {"run", kConfig, "--quiet", "--run-dir", run_dir.string()};
  std::vector<std::string> all = {"engine.vllm_command=[" + kServer + ", serve]",
                                  "engine.env=[" + server_env + "]",
                                  "rollout.num_rollout=3",
                                  "rollout.rollout_batch_size=8",
                                  "trainer.global_batch_size=64",
                                  "eval.num_samples=8",
                                  "engine.startup_timeout=60s"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  for (const std::string& one : all) words.insert(words.end(), {"--set", one});
  return words;
}

Outcome run(const fs::path& run_dir, const std::string& server_env, const std::vector<std::string>& overrides = {}) {
  return run_vime(arguments(run_dir, server_env, overrides), std::chrono::seconds(120));
}

// Processes that name this folder on their command line, as servers do with their model.
int processes_with(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string words((std::istreambuf_iterator<char>(file)), {});
    if (contains(words, folder.string()) && entry.path().filename() != std::to_string(::getpid())) ++count;
  }
  return count;
}

bool all_gone_from(const fs::path& folder) {
  const Deadline deadline(milliseconds(5000));
  while (processes_with(folder) > 0 && !deadline.passed()) std::this_thread::sleep_for(milliseconds(50));
  return processes_with(folder) == 0;
}

}  // namespace

TEST_CASE("a run against vLLM servers is right in every wire generation, and leaves nothing behind") {
  for (const char* version : {"0.21.0", "0.24.0", "0.25.1", "0.32.0"}) {
    CAPTURE(version);
    const TempDir dir;
    const Outcome outcome =
        run(dir.path() / "run", std::string("VIME_STAND_IN_VERSION=") + version, {"placement.rollout_num_gpus=2"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    const std::vector<Json> lines = read_lines(dir.path() / "run" / "metrics.jsonl");
    CHECK(lines.back()["weights/version"] == 4);
    CHECK(lines.back()["train/train_rollout_logprob_abs_diff"].get<double>() < 1e-5);
    CHECK_FALSE(fs::exists(dir.path() / "run" / "weights"));
    CHECK(all_gone_from(dir.path()));
  }
}

TEST_CASE("an engine that claims a version it does not compute with is found, stale, half-loaded or mis-sharded") {
  // A server that was started without weights has, by its seed, those that training begins with: its first load is no
  // test.
  for (const char* fault : {"load:3=stale", "load:2=half", "load:2=swapped_rows"}) {
    CAPTURE(fault);
    const TempDir dir;
    const Outcome outcome = run(dir.path() / "run", std::string("VIME_STAND_IN_FAULT=") + fault);
    CAPTURE(outcome.err);
    CHECK(outcome.status == 3);
    CHECK(contains(outcome.err, "engine 0: its log-probs of a fixed text"));
    CHECK(all_gone_from(dir.path()));
  }
}

TEST_CASE("a push that fails, hangs or kills its server ends the run with the server's name, and is not resumed") {
  struct Planted {
    const char* fault;
    std::string says;
  };
  const std::string killed = "engine-0 was killed by signal 9";
  for (const auto& planted :
       {Planted{"reload:2=500", "engine 0: /collective_rpc: HTTP 500"}, Planted{"reload:2=hang", "within 3.0 s"},
        Planted{"reload:2=death", killed}, Planted{"generate:5=death", killed}, Planted{"pause:2=death", killed},
        Planted{"resume:2=death", killed}, Planted{"pause:2=500", "engine 0: /pause: HTTP 500"}}) {
    CAPTURE(planted.fault);
    const TempDir dir;
    const Outcome outcome =
        run(dir.path() / "run", std::string("VIME_STAND_IN_FAULT=") + planted.fault, {"weight_sync.timeout=3s"});
    CAPTURE(outcome.err);
    CHECK(outcome.status == 4);
    CHECK(contains(outcome.err, planted.says));
    CHECK(all_gone_from(dir.path()));
  }
}

TEST_CASE("a connection that was reset before the server did anything is no failure") {
  const TempDir dir;
  CHECK(run(dir.path() / "run", "VIME_STAND_IN_FAULT=reload:2=reset").status == 0);
}

TEST_CASE("a server that does not start says why, in its own words") {
  const TempDir dir;
  Outcome outcome = run(dir.path() / "flag", "A=b", {"engine.vllm_args=[--no-such-flag]"});
  CHECK(outcome.status == 4);
  CHECK(contains(outcome.err, "engine-0 exited with status 2"));
  CHECK(contains(outcome.err, "unrecognized arguments: --no-such-flag"));
  outcome = run(dir.path() / "hang", "VIME_STAND_IN_FAULT=startup=hang", {"engine.startup_timeout=3s"});
  CHECK(outcome.status == 4);
  CHECK(contains(outcome.err, "engine-0 at http://127.0.0.1:"));
  CHECK(contains(outcome.err, "did not serve within 3.0 s"));
  CHECK(contains(outcome.err, "the whole log: "));
  outcome = run(dir.path() / "command", "A=b", {"engine.vllm_command=[/no/such/vllm]"});
  CHECK(outcome.status == 4);
  CHECK(contains(outcome.err, "/no/such/vllm"));
  outcome = run(dir.path() / "old", "VIME_STAND_IN_VERSION=0.20.2");
  CHECK(outcome.status == 2);
  CHECK(contains(outcome.err, "0.20.2"));
  CHECK(all_gone_from(dir.path()));
}

TEST_CASE("requests that somebody aborts, with some tokens or none, are kept and counted") {
  const TempDir dir;
  // Before the rollouts there are the log-probs of the first push and the first evaluation.
  const Outcome outcome = run(dir.path() / "run", "'VIME_STAND_IN_FAULT=generate:60=abort,generate:61=abort_at_once'");
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  const std::vector<Json> lines = read_lines(dir.path() / "run" / "metrics.jsonl");
  CHECK(lines.at(1)["rollout/aborted"] == 2);
  CHECK(lines.at(1)["rollout/samples"] == 64);
  CHECK(lines.back()["rollout/aborted"] == 0);
  std::multiset<int64_t> lengths;
  for (const Json& sample : read_lines(dir.path() / "run" / "rollouts" / "rollout_000000.jsonl")) {
    if (sample["state"] == "aborted") lengths.insert(sample["response_len"].get<int64_t>());
  }
  CHECK(lengths == std::multiset<int64_t>{0, 1});
  CHECK(all_gone_from(dir.path()));
}

TEST_CASE("external servers are asked first, told everything that does not fit, and never ended") {
  const TempDir dir;
  // A folder that a server can be started on: the first run's checkpoint.
  REQUIRE(run(dir.path() / "first", "A=b", {"rollout.num_rollout=1"}).status == 0);
  const std::string model = (dir.path() / "first" / "checkpoints" / "latest" / "model").string();
  const std::string port = [] {  // that nobody listens on
    http::Server server({});
    server.start();
    return std::to_string(server.port());
  }();
  const std::string url = "http://127.0.0.1:" + port;
  const Program server({kServer, "serve", model, "--host", "127.0.0.1", "--port", port, "--dtype", "float32",
                        "--max-model-len", "16", "--logprobs-mode", "processed_logprobs"},
                       {"VLLM_SERVER_DEV_MODE=1", "VIME_STAND_IN_VERSION=0.25.1"});
  http::Client client;
  const auto healthy = [&] {
    http::Request request;
    request.method = "GET";
    request.url = url + "/health";
    request.what = "health";
    request.timeout = milliseconds(2000);
    const http::Outcome outcome = client.send(std::move(request)).get();
    return outcome.answered && outcome.reply.status == 200;
  };
  const Deadline deadline(milliseconds(30000));
  while (!healthy() && !deadline.passed()) std::this_thread::sleep_for(milliseconds(100));
  REQUIRE(healthy());

  const auto external = [&](const fs::path& run_dir, const std::vector<std::string>& overrides) {
    std::vector<std::string> words = {"run",
                                      kConfig,
                                      "--quiet",
                                      "--run-dir",
                                      run_dir.string(),
                                      "--set",
                                      "engine.backend=external",
                                      "--set",
                                      "engine.urls=[" + url + "]",
                                      "--set",
                                      "engine.vllm_args=[]",
                                      "--set",
                                      "engine.env=[]",
                                      "--set",
                                      "rollout.num_rollout=2",
                                      "--set",
                                      "rollout.rollout_batch_size=8",
                                      "--set",
                                      "trainer.global_batch_size=64",
                                      "--set",
                                      "eval.num_samples=8"};
    for (const std::string& one : overrides) words.insert(words.end(), {"--set", one});
    return run_vime(words, std::chrono::seconds(120));
  };
  Outcome outcome = external(dir.path() / "fits", {});
  CAPTURE(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(healthy());
  outcome = external(dir.path() / "longer", {"engine.max_model_len=64", "placement.rollout_num_gpus=2",
                                             "placement.rollout_num_gpus_per_engine=2"});
  CHECK(outcome.status == 2);
  CHECK(contains(outcome.err, "may have 16 tokens, the run needs 64"));
  CHECK(contains(outcome.err, "has 1 workers, the spec says 2"));
  CHECK_FALSE(fs::exists(dir.path() / "longer" / "logs" / "latest" / "trainer-0.log"));  // nothing was started
  outcome = external(dir.path() / "other", {"model.preset=small"});
  CHECK(outcome.status == 2);
  CHECK(contains(outcome.err, "its model " + model + " is another: \""));
  CHECK(healthy());
}
