// The update session's state machine, with what an error leaves behind.
#include <cstring>

#include "checkpoints.hpp"
#include "payloads.hpp"
#include "served.hpp"
#include "weights/shared_arena.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

constexpr const char* kUuid = "57a4d100-0000-4000-8000-000000000000";
constexpr const char* kActive = "start_weight_update called while a weight update is already active.";
constexpr const char* kNoStart = "start_weight_update must be called before update_weights.";

ServeOptions ipc_server(const std::string& version, const TempDir& modules) {
  write_file_atomic(modules.path() / "ray.py", "");
  return {.version = version,
          .arguments = {"--weight-transfer-config", R"({"backend":"ipc"})"},
          .env = {"VLLM_ALLOW_INSECURE_SERIALIZATION=1", "PYTHONPATH=" + modules.path().string()}};
}

// Tensors [first, first + count) one by one, each with a handle of its own.
std::string unpacked_update(const Checkpoint& checkpoint, const weights::SharedArena& arena, std::size_t first,
                            std::size_t count, bool with_function) {
  std::vector<std::string> items;
  int64_t offset = 0;
  for (std::size_t i = 0; i < first + count; ++i) {
    const Tensor& tensor = checkpoint[i];
    std::memcpy(arena.data() + offset, tensor.bytes.data(), tensor.bytes.size());
    std::string name = arena.handle();
    name.resize(64);
    const Handle handle{name, tensor::dtype_name(tensor.info.dtype), tensor.info.shape,
                        static_cast<int64_t>(tensor.bytes.size()), offset};
    if (i >= first)
      items.push_back(pickled_dict({kUuid}, with_function ? pickled_call(handle) : pickled_arguments(handle)));
    offset += static_cast<int64_t>(tensor.bytes.size());
  }
  Json info = update_lists(checkpoint, first, count);
  info["ipc_handles_pickled"] = base64(whole_pickle(pickled_list(items)));
  return Json{{"update_info", info}}.dump();
}

struct Session {
  explicit Session(const std::string& version)
      : old_release(version == "G2a"),
        served(ipc_server(version, modules)),
        checkpoint(changed(read_checkpoint(VIME_TEST_DATA "/models/qwen3"))),
        arena(4u << 20) {}

  http::Reply start() { return served.post("/start_weight_update", "{}"); }
  http::Reply update(std::size_t first, std::size_t count) {
    return served.post("/update_weights", unpacked_update(checkpoint, arena, first, count, old_release));
  }
  http::Reply finish() { return served.post("/finish_weight_update"); }
  std::vector<double> expected() {
    const TempDir folder;
    write_checkpoint(checkpoint, folder.path());
    Served other({.model = folder.path().string()});
    return other.prompt_logprobs(kPrompt);
  }

  TempDir modules;
  bool old_release;
  Served served;
  Checkpoint checkpoint;
  weights::SharedArena arena;
};

}  // namespace

TEST_CASE("without a transfer configuration the routes exist and the worker says no") {
  Served served;
  for (const char* path : {"/start_weight_update", "/finish_weight_update"})
    check_error(served.post(path), 500, "Weight transfer not configured.");
  check_error(served.post("/init_weight_transfer_engine", R"({"init_info":{}})"), 500, "not configured");
  check_error(served.post("/update_weights", "{}"), 400, "body.update_info");
}

TEST_CASE("calls out of order are refused in the release's words") {
  for (const char* version : {"G2a", "G2b", "G2c", "G3"}) {
    CAPTURE(version);
    Session session(version);
    check_error(session.update(0, 1), 500, kNoStart);
    check_error(session.finish(), 500,
                std::string(version) < "G2c" ? "start_weight_update must be called before finish_weight_update."
                                             : "finish_weight_update called without a matching start_weight_update.");
    CHECK(session.start().body == R"({"message":"Weight update started"})");
    check_error(session.start(), 500, kActive);
    CHECK(session.update(0, 2).body == R"({"message":"Weights updated"})");
    CHECK(session.finish().body == R"({"message":"Weight update finished"})");
    check_error(session.update(0, 1), 500, kNoStart);
  }
}

TEST_CASE("start wants a JSON body until 0.24") {
  for (const char* version : {"G2a", "G2b", "G2c", "G3"}) {
    CAPTURE(version);
    Session session(version);
    CHECK(session.served.post("/start_weight_update").status == (std::string(version) < "G2c" ? 400 : 200));
  }
}

TEST_CASE("a whole push gives what loading the checkpoint gives, in every release") {
  for (const char* version : {"G2a", "G2b", "G2c", "G3"}) {
    CAPTURE(version);
    Session session(version);
    const auto before = session.served.prompt_logprobs(kPrompt);
    CHECK(session.served.post("/init_weight_transfer_engine", R"({"init_info":{}})").status == 200);
    session.served.post("/pause");
    CHECK(session.start().status == 200);
    const std::size_t half = session.checkpoint.size() / 2;
    CHECK(session.update(0, half).status == 200);
    CHECK(session.update(half, session.checkpoint.size() - half).status == 200);
    CHECK(session.finish().status == 200);
    session.served.post("/resume");
    const auto after = session.served.prompt_logprobs(kPrompt);
    CHECK(after != before);
    CHECK(after == session.expected());
  }
}

TEST_CASE("an update that raised ends the session from 0.25 on, and leaves the flag before") {
  for (const char* version : {"G2b", "G2c"}) {
    CAPTURE(version);
    Session session(version);
    session.served.post("/pause");
    session.start();
    CHECK(session.update(0, 1).status == 200);
    check_error(session.served.post("/update_weights", R"({"update_info":{"names":[]}})"), 500,
                "Invalid update_info for IPCWeightTransferEngine: IPCWeightTransferUpdateInfo.__init__() missing 2 "
                "required positional arguments: 'dtype_names' and 'shapes'");
    const bool still_active = std::string(version) == "G2b";
    CHECK(session.start().status == (still_active ? 500 : 200));
  }
}

TEST_CASE("a forward pass between start and finish kills the engine") {
  Session session("G3");
  session.start();
  check_error(session.served.post("/v1/completions", R"({"model":"m","prompt":[1,2],"max_tokens":2})"), 500,
              "EngineCore encountered an issue");
  CHECK(session.served.get("/health").status == 503);
  check_error(session.finish(), 500, "EngineCore");
}

TEST_CASE("a model that a failed update has left half-loaded dies of the next request") {
  Session session("G2c");
  session.served.post("/pause");
  session.start();
  session.update(0, 1);
  session.served.post("/update_weights", R"({"update_info":{"bogus":1}})");
  auto request = session.served.send("POST", "/v1/completions", R"({"model":"m","prompt":[1,2],"max_tokens":2})");
  session.served.wait_for_load(1);
  CHECK(session.served.get("/health").status == 200);
  session.served.post("/resume");
  CHECK(Served::reply(std::move(request)).status == 500);
  CHECK(session.served.get("/health").status == 503);
}

TEST_CASE("modules that got nothing keep their weights, those that got a part are ruined") {
  Session session("G3");
  const auto before = session.served.prompt_logprobs(kPrompt);
  session.start();
  CHECK(session.finish().status == 200);
  CHECK(session.served.prompt_logprobs(kPrompt) == before);
  std::size_t q = 0;
  while (session.checkpoint[q].info.name.find("layers.0.self_attn.q_proj.weight") == std::string::npos) ++q;
  session.start();
  CHECK(session.update(q, 1).status == 200);
  CHECK(session.finish().status == 200);
  CHECK(session.served.prompt_logprobs(kPrompt) != before);
}

TEST_CASE("an update into weights that are asleep kills the engine") {
  TempDir modules;
  ServeOptions options = ipc_server("G3", modules);
  options.arguments.emplace_back("--enable-sleep-mode");
  Served served(options);
  served.post("/sleep?level=2");
  check_error(served.post("/start_weight_update"), 500, "EngineCore encountered an issue");
  CHECK(served.get("/health").status == 503);
}

TEST_CASE("the newest release publishes the version that finish names, and only then") {
  Session session("G3");
  const auto version = [&] { return parse_json(session.served.get("/weight_info").body)["weight_version"]; };
  CHECK(version() == "default");
  session.start();
  check_error(session.served.post("/finish_weight_update", R"({"weight_version":3})"), 400, "valid string");
  CHECK(session.served.post("/finish_weight_update", R"({"weight_version":"7"})").status == 200);
  CHECK(version() == "7");
  check_error(session.served.post("/finish_weight_update", R"({"weight_version":"8"})"), 500, "matching start");
  CHECK(version() == "7");
  CHECK(session.served.post("/update_weight_version", R"({"new_version":"9"})").body ==
        R"({"success":true,"new_version":"9"})");
  CHECK(version() == "9");
  Session older("G2c");
  older.start();
  CHECK(older.served.post("/finish_weight_update", R"({"weight_version":"7"})").status == 400);
}
