// reload_weights, and the prefix cache that it leaves alone.
#include <cmath>

#include "checkpoints.hpp"
#include "served.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

struct Folders {
  Folders() { write_checkpoint(changed(read_checkpoint(VIME_TEST_DATA "/models/qwen3")), folder.path() / "next"); }
  std::string next() const { return (folder.path() / "next").string(); }
  TempDir folder;
};

http::Reply reload(Served& served, const std::string& folder) {
  return served.post("/collective_rpc",
                     Json{{"method", "reload_weights"}, {"kwargs", {{"weights_path", folder}}}}.dump());
}

// The log-prob of the first token after the prompt.
double first_logprob(Served& served, const std::string& salt = "") {
  Json body = {{"model", "m"},     {"prompt", kPrompt}, {"max_tokens", 1},
               {"temperature", 0}, {"logprobs", 0},     {"ignore_eos", true}};
  if (!salt.empty()) body["cache_salt"] = salt;
  return served.post_json("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"][0].get<double>();
}

}  // namespace

TEST_CASE("a changed checkpoint changes greedy output and log-probs to what a fresh server gives") {
  const Folders folders;
  Served served({.version = "G2c", .arguments = {"-tp", "2"}});
  Served fresh({.model = folders.next()});
  const auto old_tokens = served.greedy(kPrompt, 8);
  const auto old_logprobs = served.prompt_logprobs(kPrompt);
  served.post("/pause");
  CHECK(reload(served, folders.next()).body == R"({"results":[null,null]})");
  served.post("/resume");
  CHECK(served.prompt_logprobs(kPrompt) != old_logprobs);
  CHECK(served.prompt_logprobs(kPrompt) == fresh.prompt_logprobs(kPrompt));
  CHECK(served.greedy(kPrompt, 8) != old_tokens);
  CHECK(served.greedy(kPrompt, 8) == fresh.greedy(kPrompt, 8));
  // The path is remembered.
  CHECK(served.post("/collective_rpc", R"({"method":"reload_weights"})").status == 200);
  CHECK(served.prompt_logprobs(kPrompt) == fresh.prompt_logprobs(kPrompt));
}

TEST_CASE("a prefix cache that is not cleared gives log-probs of the old weights, a new salt does not") {
  const Folders folders;
  Served fresh({.model = folders.next()});
  const double right = first_logprob(fresh);
  Served served;
  first_logprob(served, "1");
  CHECK(reload(served, folders.next()).status == 200);
  const double stale = first_logprob(served, "1");
  CHECK(std::abs(stale - right) > 1e-3);
  CHECK(first_logprob(served, "1") == stale);
  CHECK(first_logprob(served, "2") == right);
  CHECK(served.post("/reset_prefix_cache").status == 200);
  CHECK(first_logprob(served, "1") == right);
}

TEST_CASE("a pause clears the prefix cache unless it is told not to") {
  const Folders folders;
  Served fresh({.model = folders.next()});
  const double right = first_logprob(fresh);
  for (const bool clear : {true, false}) {
    Served served;
    first_logprob(served);
    served.post(std::string("/pause?clear_cache=") + (clear ? "true" : "false"));
    reload(served, folders.next());
    served.post("/resume");
    CHECK((first_logprob(served) == right) == clear);
  }
  Served without({.arguments = {"--no-enable-prefix-caching"}});
  first_logprob(without);
  reload(without, folders.next());
  CHECK(first_logprob(without) == right);
}

TEST_CASE("what is sampled across a keep pause mixes versions and says so") {
  const Folders folders;
  Served served({.arguments = {"--enable-scale-out"}, .env = {"VIME_STAND_IN_STEP_MS=5"}});
  const Json body = {{"token_ids", kPrompt},
                     {"sampling_params", {{"max_tokens", 400}, {"temperature", 1}, {"ignore_eos", true}}}};
  auto running = served.send("POST", "/inference/v1/generate", body.dump());
  served.wait_for_load(1);
  served.post("/pause?mode=keep");
  CHECK(reload(served, folders.next()).status == 200);
  served.post("/update_weight_version", R"({"new_version":"2"})");
  served.post("/resume");
  const Json choice = parse_json(Served::reply(std::move(running)).body)["choices"][0];
  CHECK(choice["token_ids"].size() == 400);
  const Json spans = choice["weight_versions"];
  CHECK(spans.back()["version"] == "2");
  CHECK(spans.back()["end"] == 400);
  CHECK(spans.front()["start"] == 0);
}

TEST_CASE("a dummy load wants its format changed before it can reload") {
  const Folders folders;
  Served fresh({.model = folders.next()});
  Served served({.arguments = {"--load-format", "dummy"}});
  CHECK(served.prompt_logprobs(kPrompt) != fresh.prompt_logprobs(kPrompt));
  served.post("/pause");
  check_error(reload(served, folders.next()), 500, "Model reloading with `dummy` format");
  check_error(served.post("/collective_rpc", R"({"method":"update_config","kwargs":{"overrides":{"other":{}}}})"), 500,
              "not supported");
  CHECK(served
            .post("/collective_rpc",
                  R"({"method":"update_config","kwargs":{"overrides":{"load_config":{"load_format":"auto"}}}})")
            .body == R"({"results":[null]})");
  CHECK(reload(served, folders.next()).status == 200);
  served.post("/resume");
  CHECK(served.prompt_logprobs(kPrompt) == fresh.prompt_logprobs(kPrompt));
}

TEST_CASE("a reload that failed leaves a model that dies of the next request") {
  Served served;
  check_error(reload(served, "/no/such/folder"), 500, "Repo id must be in the form");
  CHECK(served.get("/health").status == 200);
  check_error(served.post("/v1/completions", R"({"model":"m","prompt":[1],"max_tokens":1})"), 500, "EngineCore");
  CHECK(served.get("/health").status == 503);
}

TEST_CASE("methods and arguments that workers do not have are refused") {
  Served served;
  check_error(served.post("/collective_rpc", R"({"method":"no_such"})"), 500, "Method 'no_such' is not implemented.");
  check_error(served.post("/collective_rpc", R"({"args":[]})"), 400, "Missing 'method' in request body");
  check_error(served.post("/collective_rpc", R"({"method":"reload_weights","kwargs":{"path":"/x"}})"), 500,
              "unexpected keyword argument 'path'");
  CHECK(served.get("/health").status == 200);
}
