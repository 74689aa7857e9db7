// The node agent with the worker module loaded once, driven as a run drives it; the engine is a real one.
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"
#include "proc/agent.hpp"

using namespace vime;
using namespace vime::e2e;
using Kind = proc::Event::Kind;

namespace {

// The smallest model that the engine takes; its weights are dummies.
void write_model(const fs::path& folder) {
  const Json config = {{"architectures", {"Qwen3ForCausalLM"}},
                       {"model_type", "qwen3"},
                       {"vocab_size", 32},
                       {"hidden_size", 16},
                       {"intermediate_size", 32},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", 8},
                       {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000.0},
                       {"tie_word_embeddings", true},
                       {"hidden_act", "silu"},
                       {"eos_token_id", 0}};
  fs::create_directories(folder);
  write_file_atomic(folder / "config.json", config.dump());
}

struct Bench {
  explicit Bench(bool preload) : agent(vime_binary(), run_id, {.preload = preload}) { write_model(folder.path()); }
  ~Bench() { agent.shutdown(milliseconds(0)); }

  proc::Event start(const std::string& role, const std::vector<std::string>& arguments) {
    proc::Command command;
    command.role = role;
    command.argv = {vime_binary()};
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    command.log_path = folder.path() / (role + ".log");
    command.env = env;
    agent.start(command);
    return expect(Kind::started);
  }
  proc::Event start_engine(int devices) {
    const proc::Event started = start("engine-0", {"engine", "--model", folder.path(), "--load-format", "dummy",
                                                   "--run-id", run_id, "--devices", std::to_string(devices)});
    expect(Kind::ready);
    return started;
  }
  proc::Event expect(Kind kind) {
    const auto event = agent.next_event(milliseconds(60000));
    REQUIRE(event);
    INFO(event->role << " " << event->error << " " << describe_exit(*event) << " " << join(event->log_tail, "\n"));
    REQUIRE(event->kind == kind);
    return *event;
  }

  TempDir folder;
  std::string run_id = "e" + random_token();
  std::map<std::string, std::string> env;
  proc::Agent agent;
};

// The first address at which a process has mapped the worker module, "" when it has not: the kernel chooses it anew
// for every exec.
std::string module_address(int pid) {
  for (const std::string& line : split(read_file("/proc/" + std::to_string(pid) + "/maps"), '\n')) {
    if (line.find("/libvime_worker.so") != std::string::npos) return line.substr(0, line.find('-'));
  }
  return "";
}

}  // namespace

TEST_CASE("a preloading agent has loaded the worker module and its engines are forks, under titles of their own") {
  Bench bench(true);
  const proc::Event started = bench.start_engine(2);
  CHECK_FALSE(module_address(bench.agent.pid()).empty());
  CHECK(module_address(started.pid) == module_address(bench.agent.pid()));
  CHECK(find_process(bench.run_id, "vime agent " + bench.run_id) == bench.agent.pid());
  CHECK(find_process(bench.run_id, "vime engine " + bench.run_id) > 0);
  CHECK(find_process(bench.run_id, "vime engine " + bench.run_id + " worker 1") > 0);
  CHECK(processes_of(bench.run_id).size() == 4);
  bench.agent.stop("engine-0", milliseconds(10000));
  const proc::Event exited = bench.expect(Kind::exited);
  CHECK(exited.code == 0);
  CHECK(exited.expected);
  CHECK(processes_of(bench.run_id).size() == 1);
}

TEST_CASE("an agent that was not asked to preload has not loaded the worker module") {
  Bench bench(false);
  bench.start_engine(1);
  CHECK(module_address(bench.agent.pid()).empty());
}

TEST_CASE("when a preloading agent is killed, its engines and their workers go too") {
  Bench bench(true);
  bench.start_engine(2);
  REQUIRE(::kill(bench.agent.pid(), SIGKILL) == 0);
  bench.expect(Kind::agent_lost);
  CHECK(all_gone(bench.run_id));
}

TEST_CASE("a forked trainer says what is wrong and ends with the status of its error") {
  Bench bench(true);
  bench.start("trainer-0", {"trainer", "--run-dir", "/nowhere", "--run-id", bench.run_id, "--rank", "0"});
  const proc::Event missing = bench.expect(Kind::exited);
  CHECK(missing.code == 2);
  CHECK(join(missing.log_tail, "\n").find("vime trainer: /nowhere/spec.yaml") == 0);
  bench.start("trainer-0", {"trainer", "--rnak", "0"});
  const proc::Event usage = bench.expect(Kind::exited);
  CHECK(usage.code == 2);
  CHECK(join(usage.log_tail, "\n").find("unknown option \"--rnak\" (did you mean \"--rank\"?)") != std::string::npos);
}

TEST_CASE("a worker that names a module of its own gets that one, and a module that is not there is named") {
  Bench bench(true);
  bench.env = {{"VIME_WORKER_MODULE", "/nowhere/module.so"}};
  bench.start("engine-0", {"engine", "--model", bench.folder.path()});
  const proc::Event own = bench.expect(Kind::exited);
  CHECK(own.code == 2);
  CHECK(own.log_tail.front().find("vime: load the worker module: /nowhere/module.so: ") == 0);

  ::setenv("VIME_WORKER_MODULE", "/nowhere/module.so", 1);
  Bench without(true);
  ::unsetenv("VIME_WORKER_MODULE");
  without.start("engine-0", {"engine", "--model", bench.folder.path()});
  const proc::Event missing = without.expect(Kind::exited);
  CHECK(missing.code == 2);
  CHECK(missing.log_tail.front().find("vime: load the worker module: /nowhere/module.so: ") == 0);
}
