// What a server says of itself is held against what a run needs; everything that is wrong is said at once.
#include "fleet/vllm_probe.hpp"

#include <doctest/doctest.h>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "fleet/vllm_report.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::fleet;

namespace {

struct SomeServer {
  http::Server server{{}};
  http::Client client;
  Json info = parse_json(R"({"vllm_config": {"model_config": {"dtype": "torch.bfloat16", "enable_sleep_mode": true,
                                                                  "logprobs_mode": "processed_logprobs",
                                                                  "quantization": null, "model": "/models/a"},
                                              "device_config": {"device": "cuda"},
                                              "weight_transfer_config": {"backend": "nccl"}},
                              "vllm_env": {"VLLM_ALLOW_INSECURE_SERIALIZATION": true}})");

  explicit SomeServer(bool dev_mode) {
    answer("/version", R"({"version": "0.25.1"})");
    answer("/v1/models", R"({"data": [{"id": "policy", "max_model_len": 4096}]})");
    if (dev_mode) {
      answer("/get_world_size", R"({"world_size": 2})");
      server.route("GET", "/server_info", [this](const http::ServerRequest&, http::Responder responder) {
        responder.respond({200, info.dump()});
      });
    }
    server.start();
  }
  void answer(const std::string& path, const std::string& body) {
    server.route("GET", path, [body](const http::ServerRequest&, http::Responder responder) {
      responder.respond({200, body});
    });
  }
  ServerFacts ask() {
    return ask_server(client, {0, "http://127.0.0.1:" + std::to_string(server.port()), ""}, milliseconds(5000));
  }
};

ServerNeeds fitting() {
  return {2, "bfloat16", 4096, "nccl", "processed_logprobs", true, false};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a server's own words are taken, and a server that fits has no problems") {
  SomeServer some(true);
  const ServerFacts facts = some.ask();
  CHECK(facts.version == "0.25.1");
  CHECK(facts.served_model == "policy");
  CHECK(facts.max_model_len == 4096);
  CHECK(facts.world_size == 2);
  CHECK(facts.dtype == "bfloat16");
  CHECK(facts.transfer_backend == "nccl");
  CHECK(facts.sleep_mode);
  CHECK(facts.insecure_serialization);
  CHECK(facts.device == "cuda");
  CHECK(facts.quantization.empty());
  CHECK(facts.model_dir == "/models/a");
  CHECK(server_problems(facts, fitting()).empty());
  CHECK(server_warning(facts).empty());
}

TEST_CASE("everything that does not fit is said at once") {
  SomeServer some(true);
  some.info["vllm_config"]["weight_transfer_config"] = nullptr;
  some.info["vllm_config"]["model_config"] = {{"dtype", "torch.float32"},
                                              {"enable_sleep_mode", false},
                                              {"logprobs_mode", "raw_logprobs"},
                                              {"quantization", "fp8"}};
  ServerNeeds needs = fitting();
  needs.world_size = 4;
  needs.max_model_len = 8192;
  const std::vector<std::string> problems = server_problems(some.ask(), needs);
  REQUIRE(problems.size() == 7);
  CHECK(contains(problems[0], "4096 tokens, the run needs 8192"));
  CHECK(contains(problems[1], "has 2 workers, the spec says 4"));
  CHECK(contains(problems[2], "computes in float32, the trainer sends bfloat16"));
  CHECK(contains(problems[3], "weights are quantized (fp8)"));
  CHECK(contains(problems[4], "log-probs are raw_logprobs, the spec says processed_logprobs"));
  CHECK(contains(problems[5],
                 R"(configured for none, the run needs nccl (--weight-transfer-config '{"backend":"nccl"}'))"));
  CHECK(contains(problems[6], "--enable-sleep-mode"));
}

TEST_CASE("handles that are pickles need a server that reads them; packed ones a release that knows them") {
  ServerFacts facts{"0.21.0", "policy", 4096, true, 1, "bfloat16", "ipc", "", false, false};
  ServerNeeds needs{1, "bfloat16", 100, "ipc", "processed_logprobs", false, true};
  const std::vector<std::string> problems = server_problems(facts, needs);
  REQUIRE(problems.size() == 2);
  CHECK(contains(problems[0], "0.21.0 takes no packed buffers over CUDA IPC"));
  CHECK(contains(problems[1], "VLLM_ALLOW_INSECURE_SERIALIZATION=1"));
  facts.version = "0.22.0";
  facts.insecure_serialization = true;
  CHECK(server_problems(facts, needs).empty());
}

TEST_CASE("a server without the routes of pushes is refused with the cure; one that is no vLLM at all by its address") {
  SomeServer some(false);
  const std::vector<std::string> problems = server_problems(some.ask(), fitting());
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems[0], "VLLM_SERVER_DEV_MODE=1"));

  http::Server other({});
  other.start();
  http::Client client;
  try {
    ask_server(client, {3, "http://127.0.0.1:" + std::to_string(other.port()), ""}, milliseconds(5000));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(contains(error.message(), "engine 3 at http://127.0.0.1:" + std::to_string(other.port()) + ": /version"));
    CHECK(contains(error.message(), "no vLLM server"));
  }
}

TEST_CASE("a release before 0.21 is refused, one that is newer than known is spoken to with a warning") {
  ServerFacts facts{"0.20.2", "policy", 4096, true, 2, "bfloat16", "nccl", "", true, true};
  CHECK(server_problems(facts, fitting()).size() == 1);
  facts.version = "9.1.0";
  CHECK(server_problems(facts, fitting()).empty());
  CHECK(contains(server_warning(facts), "9.1.0 is newer than what vime knows"));
}

TEST_CASE("the report on a server offers pushes between GPUs only where it has GPUs") {
  SomeServer some(true);
  Json report = server_report("http://127.0.0.1:1", some.ask());
  CHECK(report["can"]["push over CUDA IPC"] == "yes");
  CHECK(report["can"]["push over NCCL"] == "yes");
  some.info["vllm_config"]["device_config"]["device"] = "cpu";
  report = server_report("http://127.0.0.1:1", some.ask());
  CHECK(report["settings"]["device"] == "cpu");
  CHECK(report["can"]["push over CUDA IPC"] == "no, a build for GPUs does");
  CHECK(report["can"]["push over NCCL"] == "no, a build for GPUs does");
  CHECK(report["can"]["push from a folder"] == "yes");
}
