// The command line, the environment and what a start-up can fail of.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "served.hpp"
#include "support/vllm/environment.hpp"
#include "support/vllm/faults.hpp"
#include "support/vllm/serve_arguments.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

ServeArguments parse(const std::vector<std::string>& arguments, const std::string& version = "G3") {
  std::vector<std::string> all = {"serve", "/m"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return parse_serve_arguments(all, flavour_of(version));
}

std::string refusal(const std::vector<std::string>& arguments, const std::string& version = "G3") {
  try {
    parse(arguments, version);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("flags are read in all of argparse's spellings") {
  const ServeArguments arguments =
      parse({"--port", "81", "-tp", "2", "--max_model_len=64", "--served-model-name", "a", "b", "--enforce-eager",
             "--weight-transfer-config", R"({"backend":"ipc"})", "--enable-scale-out"});
  CHECK(arguments.model == "/m");
  CHECK(arguments.port == 81);
  CHECK(arguments.workers() == 2);
  CHECK(arguments.max_model_len == 64);
  CHECK(arguments.served_names == std::vector<std::string>{"a", "b"});
  CHECK(arguments.transfer_backend == "ipc");
  CHECK(arguments.scale_out);
  CHECK(parse({}).served_names == std::vector<std::string>{"/m"});
}

TEST_CASE("what argparse refuses is refused in its words") {
  CHECK(has(refusal({"--no-such-flag"}), "vllm: error: unrecognized arguments: --no-such-flag"));
  CHECK(has(refusal({"--enable-scale-out"}, "G2c"), "unrecognized arguments: --enable-scale-out"));
  CHECK(has(refusal({"--port", "x"}), "argument --port: invalid int value: 'x'"));
  CHECK(has(refusal({"--port"}), "argument --port: expected one argument"));
  CHECK(has(refusal({"--dtype", "int3"}), "argument --dtype: invalid choice: 'int3'"));
  CHECK(has(refusal({"--weight-transfer-config", "{"}), "--weight-transfer-config"));
  CHECK_THROWS_AS(parse({"--weight-transfer-config", R"({"backend":"gloo"})"}), Error);
  CHECK_THROWS_AS(parse({"--max-num-seqs", "2049"}), Error);
  CHECK(parse({"--max-num-seqs", "2049", "--max-num-batched-tokens", "2049"}).max_num_seqs == 2049);
  CHECK_THROWS_AS(parse({"--weight-transfer-config", R"({"backend":"sparse_nccl"})"}, "G2b"), Error);
}

TEST_CASE("workers take the UUIDs of the devices that are visible") {
  Environment environment;
  environment.uuids = "u0,u1,u2,u3";
  ServeArguments arguments;
  arguments.tensor_parallel = 2;
  CHECK(worker_uuids(environment, arguments) == std::vector<std::string>{"u0", "u1"});
  environment.visible_devices = "2,3";
  CHECK(worker_uuids(environment, arguments) == std::vector<std::string>{"u2", "u3"});
  environment.visible_devices = "3,GPU-u1";
  CHECK(worker_uuids(environment, arguments) == std::vector<std::string>{"u3", "u1"});
  environment.visible_devices = "1";
  CHECK_THROWS_WITH(worker_uuids(environment, arguments), doctest::Contains("World size (2) is larger"));
}

TEST_CASE("faults are read, counted, and refused when they make no sense") {
  Faults faults("update:2=500,finish=hang,load:1=stale");
  CHECK(!faults.next("update"));
  CHECK(faults.next("update") == "500");
  CHECK(!faults.next("update"));
  CHECK(faults.next("finish") == "hang");
  CHECK(faults.next("finish") == "hang");
  CHECK(faults.next("load") == "stale");
  for (const char* text : {"update", "update=", "update=200", "update:0=500", "load=500", "finish=stale", "=hang"})
    CHECK_THROWS_AS(Faults{text}, Error);
  CHECK(phase_of("/inference/v1/generate") == "generate");
  CHECK(phase_of("/pause") == "pause");
}

TEST_CASE("the program leaves with argparse's status, or with 1 and a traceback") {
  const Ended unknown = run_stand_in({"serve", "/m", "--frobnicate"}, {});
  CHECK(unknown.status == 2);
  CHECK(has(unknown.err, "unrecognized arguments: --frobnicate"));
  const std::string model = VIME_TEST_DATA "/models/qwen3";
  const Ended fault = run_stand_in({"serve", model, "--port", "0"}, {"VIME_STAND_IN_FAULT=startup=death"});
  CHECK(fault.status == 1);
  CHECK(has(fault.err, "Traceback"));
  const Ended world = run_stand_in({"serve", model, "-tp", "2", "--port", "0"}, {"CUDA_VISIBLE_DEVICES=0"});
  CHECK(world.status == 1);
  CHECK(has(world.err, "World size (2)"));
}

TEST_CASE("some releases want a module ray for the ipc backend, an empty one will do") {
  const std::vector<std::string> arguments = {"serve", VIME_TEST_DATA "/models/qwen3", "--port",
                                              "0",     "--weight-transfer-config",     R"({"backend":"ipc"})"};
  const Ended without = run_stand_in(arguments, {"VIME_STAND_IN_VERSION=G2c"});
  CHECK(without.status == 1);
  CHECK(has(without.err, "No module named 'ray'"));
  const TempDir folder;
  write_file_atomic(folder.path() / "ray.py", "");
  const Ended with = run_stand_in(arguments, {"VIME_STAND_IN_VERSION=G2c", "PYTHONPATH=" + folder.path().string()});
  CHECK(has(with.err, "Uvicorn running"));
  CHECK(has(run_stand_in(arguments, {"VIME_STAND_IN_VERSION=G3"}).err, "Uvicorn running"));
}

TEST_CASE("SIGTERM ends it with status 0, and a taken port with 1") {
  Served served;
  const Ended second = run_stand_in(
      {"serve", VIME_TEST_DATA "/models/qwen3", "--host", "127.0.0.1", "--port", std::to_string(served.port())}, {});
  CHECK(second.status == 1);
  CHECK(has(second.err, "[Errno 98]"));
  CHECK(served.signal_and_wait(15) == 0);
}

TEST_CASE("an engine process goes with a server that is asked to end, and outlives one that is killed") {
  for (const int signal : {SIGTERM, SIGKILL}) {
    Served served({.env = {"VIME_STAND_IN_ENGINE_PROCESS=1"}});
    const std::string id = std::to_string(served.pid());
    const pid_t engine = std::stoi(read_file("/proc/" + id + "/task/" + id + "/children"));
    const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, engine, 0)));
    served.signal_and_wait(signal);
    pollfd ended{handle.get(), POLLIN, 0};
    CHECK(::poll(&ended, 1, signal == SIGTERM ? 10'000 : 100) == (signal == SIGTERM ? 1 : 0));
    if (signal == SIGKILL) ::kill(engine, SIGKILL);
  }
}
