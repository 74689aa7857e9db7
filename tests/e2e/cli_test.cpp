// The command line as a user meets it: help, usage errors, bad specs, vime plan.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/files.hpp"
#include "base/json.hpp"
#include "base/strings.hpp"
#include "e2e/run_binary.hpp"

using namespace vime;
using e2e::Outcome;
using e2e::run_vime;

namespace {

const std::string kQuickstart = VIME_SOURCE_DIR "/configs/quickstart.yaml";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Refused: exit 2, nothing on stdout, one message.
void check_refused(const Outcome& outcome, const std::string& message) {
  CAPTURE(outcome.err);
  CHECK(outcome.status == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.rfind("vime: ", 0) == 0);
  CHECK(contains(outcome.err, message));
  CHECK(outcome.err.find("vime: ", 1) == std::string::npos);
}

}  // namespace

TEST_CASE("vime --help lists the commands, the exit statuses and examples on stdout") {
  const Outcome help = run_vime({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* part : {"Usage: vime", "plan ", "Exit status:", "Examples:"}) CHECK(contains(help.out, part));
  CHECK_FALSE(contains(help.out, "agent"));
  for (const std::string& line : split(help.out, '\n')) CHECK(line.size() <= 100);
  const Outcome plan_help = run_vime({"plan", "--help"});
  CHECK(plan_help.status == 0);
  CHECK(contains(plan_help.out, "--set KEY=VALUE"));
}

TEST_CASE("vime --version prints one line") {
  const Outcome version = run_vime({"--version"});
  CHECK(version.status == 0);
  CHECK(version.out.rfind("vime ", 0) == 0);
  CHECK(std::count(version.out.begin(), version.out.end(), '\n') == 1);
}

TEST_CASE("the binary does not link LibTorch") {  // which takes a second to load, for every command
  const Outcome libraries = e2e::run_program({"ldd", e2e::vime_binary()}, std::chrono::seconds(30));
  CHECK(libraries.status == 0);
  CHECK(contains(libraries.out, "libc.so"));
  // With "lib": addresses in ldd's output have a "c10" now and then.
  for (const char* name : {"libtorch", "libc10", "libcuda", "libnccl"}) CHECK_FALSE(contains(libraries.out, name));
}

TEST_CASE("usage errors exit 2 with one message and where to look") {
  check_refused(run_vime({}), "a command is missing");
  check_refused(run_vime({"plna", kQuickstart}),
                "unknown command \"plna\" (did you mean \"plan\"?)\nhint: see vime --help");
  check_refused(run_vime({"plan"}), "CONFIG is required\nhint: see vime plan --help");
  check_refused(run_vime({"plan", kQuickstart, "--jsn"}),
                "unknown option \"--jsn\" (did you mean \"--json\"?)\nhint: see vime plan --help");
  check_refused(run_vime({"plan", kQuickstart, "other.yaml"}), "unknown argument \"other.yaml\"");
  check_refused(run_vime({"plan", kQuickstart, "--set"}), "--set");
  check_refused(run_vime({"--nonsense"}), "unknown option \"--nonsense\"");
  check_refused(run_vime({"agent"}), "--fd is required");
}

TEST_CASE("a bad spec exits 2 with file, line and column of every error") {
  const TempDir folder;
  const fs::path file = folder.path() / "bad.yaml";
  write_file_atomic(file, "model: {preset: tiny}\ntrainer:\n  learnig_rate: 1.0\n  lr: fast\n");
  const Outcome outcome = run_vime({"plan", file.string(), "--set", "rollout.num_rollout=0"});
  check_refused(outcome, " errors in the spec:\n");
  CHECK(contains(outcome.err,
                 "\n" + file.string() + ":3:3: unknown key \"learnig_rate\" in \"trainer\" (did you mean \"lr\"?)\n"));
  CHECK(contains(outcome.err,
                 "\n" + file.string() + ":4:7: \"trainer.lr\" must be a number of at least 0, found \"fast\"\n"));
  CHECK(contains(outcome.err, "\n--set rollout.num_rollout=0: \"rollout.num_rollout\" must be an integer"));
}

TEST_CASE("files that are no spec exit 2") {
  const TempDir folder;
  const std::pair<std::string, std::string> cases[] = {
      {"", ":1:1: the file is empty"},
      {"- a\n", ":1:1: expected sections"},
      {"seed: 1\nseed: 2\n", ":2:1: duplicate key \"seed\""},
      {"trainer:\n\tlr: 1\n", ":2:1: a tab in the indentation"},
      {"seed: 1\n---\nseed: 2\n", ":2:1: a second YAML document"},
      {"a: &a [1]\nb: [*a, *a]\n", ":1:4: anchors and aliases"},
      {"name: \"\xff\"\n", ":1:8: the text is not UTF-8"},
  };
  for (const auto& [text, message] : cases) {
    const fs::path file = folder.path() / "x.yaml";
    write_file_atomic(file, text);
    check_refused(run_vime({"plan", file.string()}), "vime: " + file.string() + message);
  }
  check_refused(run_vime({"plan", (folder.path() / "none.yaml").string()}),
                "none.yaml: No such file or directory\nhint: ");
  check_refused(run_vime({"plan", folder.path().string()}), "is a folder");
}

TEST_CASE("too few devices exit 2 with both numbers") {
  check_refused(run_vime({"plan", kQuickstart, "--set", "placement.nodes=[1]"}), "needs 1 x 2 = 2 devices");
  check_refused(
      run_vime({"plan", kQuickstart, "--set", "placement.nodes=[4]", "--set", "placement.actor_num_gpus_per_node=5"}),
      "needs 1 x 5 = 5 devices (actor_num_nodes x actor_num_gpus_per_node), but nodes has 4 devices");
}

TEST_CASE("vime plan prints a table for people") {
  const Outcome plan = run_vime({"plan", kQuickstart});
  CHECK(plan.status == 0);
  CHECK(plan.err.empty());
  for (const char* part : {"2 virtual CPU devices on 1 node", "rank 1", "engine 0", "devices 0-1", "colocated",
                           "weights over shm", "leader rank 0 of ranks 0-1", "chosen by the kernel", "trainer rank"}) {
    CAPTURE(part);
    CHECK(contains(plan.out, part));
  }
  CHECK(contains(run_vime({"plan", VIME_SOURCE_DIR "/configs/disaggregated.yaml"}).out, "weights over tcp"));
}

TEST_CASE("vime plan --json is JSON with stable keys, also for options in another order") {
  const Outcome plan = run_vime({"plan", "--json", "--set", "rollout.num_rollout=9", kQuickstart});
  CHECK(plan.status == 0);
  const Json json = parse_json(plan.out, "vime plan --json");
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"name", "device", "nodes", "devices_per_gpu", "devices", "layout", "ranks",
                                         "engines", "batch", "memory_bytes", "ports"});
  CHECK(json["engines"][0]["leader"] == 0);
  CHECK(json["batch"]["num_rollout"] == 9);
  CHECK(json["memory_bytes"]["trainer_rank"].get<int64_t>() > 1000000);
  CHECK(run_vime({"plan", kQuickstart, "--set=rollout.num_rollout=9", "--json"}).out == plan.out);
}

TEST_CASE("1,024 devices are planned in the time of a breath") {
  const Outcome plan = run_vime({"plan", kQuickstart, "--json", "--set",
                                 "placement={nodes: [1024], actor_num_gpus_per_node: 1024, rollout_num_gpus: 1024}",
                                 "--set", "rollout.rollout_batch_size=128", "--set", "trainer.global_batch_size=1024"});
  REQUIRE(plan.status == 0);
  CHECK(plan.seconds < 5);
  CHECK(parse_json(plan.out, "plan")["engines"].size() == 512);
}

TEST_CASE("output that cannot be written is an error") {
  const Outcome plan = e2e::run_program(
      {"sh", "-c", "exec \"$0\" plan \"$1\" >/dev/full", e2e::vime_binary(), kQuickstart}, std::chrono::seconds(30));
  CHECK(plan.status == 5);
  CHECK(contains(plan.err, "write to standard output: No space left on device"));
}
