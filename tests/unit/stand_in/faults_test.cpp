// Every fault that can be planted, as a client sees it.
#include "checkpoints.hpp"
#include "served.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

constexpr const char* kBody = R"({"model":"m","prompt":[1,2,3],"max_tokens":2})";

ServeOptions planted(const std::string& fault) {
  return {.arguments = {"--weight-transfer-config", R"({"backend":"ipc"})"}, .env = {"VIME_STAND_IN_FAULT=" + fault}};
}

std::string reload_body(const std::string& folder) {
  return Json{{"method", "reload_weights"}, {"kwargs", {{"weights_path", folder}}}}.dump();
}

}  // namespace

TEST_CASE("a status is answered in the call that it is planted for") {
  Served served(planted("generate:2=503,health=500"));
  CHECK(served.post("/v1/completions", kBody).status == 200);
  CHECK(served.post("/v1/completions", kBody).status == 503);
  CHECK(served.post("/v1/completions", kBody).status == 200);
  CHECK(served.get("/health").status == 500);
}

TEST_CASE("a status in a weight phase is an exception of the worker") {
  for (const char* phase : {"init", "start", "update", "finish", "reload"}) {
    CAPTURE(phase);
    Served served(planted(std::string(phase) + "=500"));
    const std::string name = phase;
    const std::string path = name == "init"     ? "/init_weight_transfer_engine"
                             : name == "start"  ? "/start_weight_update"
                             : name == "update" ? "/update_weights"
                             : name == "finish" ? "/finish_weight_update"
                                                : "/collective_rpc";
    const std::string body = name == "init"     ? R"({"init_info":{}})"
                             : name == "update" ? R"({"update_info":{}})"
                             : name == "reload" ? R"({"method":"reload_weights"})"
                                                : "";
    if (name != "start") served.post("/start_weight_update");
    check_error(served.post(path, body), 500, "Call to collective_rpc method failed: planted failure in " + name);
    // Only an update's failure ends the session.
    const bool active = name == "init" || name == "finish" || name == "reload";
    if (name != "start") CHECK(served.post("/start_weight_update").status == (active ? 500 : 200));
  }
}

TEST_CASE("a call that hangs is not answered") {
  Served served(planted("update=hang"));
  http::Client client;
  http::Request request;
  request.method = "POST";
  request.url = "http://127.0.0.1:" + std::to_string(served.port()) + "/update_weights";
  request.body = R"({"update_info":{}})";
  request.timeout = std::chrono::milliseconds(300);
  CHECK(client.send(std::move(request)).get().timed_out);
  CHECK(served.get("/health").status == 200);
}

TEST_CASE("half an answer and a reset connection are no answer") {
  for (const char* action : {"half", "reset"}) {
    CAPTURE(action);
    Served served(planted(std::string("generate=") + action));
    const http::Outcome outcome = served.send("POST", "/v1/completions", kBody).get();
    CHECK(!outcome.answered);
    CHECK(!outcome.timed_out);
    CHECK(served.get("/health").status == 200);
  }
}

TEST_CASE("a server that dies is gone") {
  Served served(planted("finish:1=death"));
  CHECK(served.post("/start_weight_update").status == 200);
  CHECK(!served.send("POST", "/finish_weight_update").get().answered);
  CHECK(served.wait() == 128 + 9);
}

TEST_CASE("stale, lost and mis-sharded weights claim the new version and show in log-probs") {
  const TempDir folder;
  write_checkpoint(changed(read_checkpoint(VIME_TEST_DATA "/models/qwen3")), folder.path());
  Served fresh({.model = folder.path().string()});
  const auto right = fresh.prompt_logprobs(kPrompt);
  for (const char* fault : {"stale", "half", "swapped_rows"}) {
    CAPTURE(fault);
    Served served(planted(std::string("load:1=") + fault));
    const auto old = served.prompt_logprobs(kPrompt);
    CHECK(served.post("/collective_rpc", reload_body(folder.path().string())).status == 200);
    const auto wrong = served.prompt_logprobs(kPrompt);
    CHECK(wrong != right);
    CHECK((wrong == old) == (std::string(fault) == "stale"));
    CHECK(served.post("/collective_rpc", reload_body(folder.path().string())).status == 200);
    CHECK(served.prompt_logprobs(kPrompt) == right);
  }
}
