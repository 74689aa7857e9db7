#include "fleet/vllm_probe.hpp"

#include "base/error.hpp"
#include "base/strings.hpp"
#include "vllm/dialect.hpp"

namespace vime::fleet {
namespace {

constexpr const char* kTorchPrefix = "torch.";

class Asking {
 public:
  Asking(http::Client& client, const weights::EngineAddress& address, std::chrono::milliseconds timeout)
      : client_(client), address_(address), asker_(client, address, timeout, timeout), timeout_(timeout) {}

  // Nothing where the server has no such route.
  std::optional<Json> get(const std::string& path) {
    const http::Outcome outcome = client_.send(asker_.request("GET", path, nullptr, timeout_)).get();
    if (outcome.answered && outcome.reply.status == 404) return std::nullopt;
    asker_.check(outcome);
    return parse_json(outcome.reply.body, what(path));
  }
  Json must_get(const std::string& path) {
    std::optional<Json> reply = get(path);
    if (!reply) throw Error(ErrorKind::process_failed, what(path) + ": there is no such route; this is no vLLM server");
    return std::move(*reply);
  }
  std::string what(const std::string& path) const { return address_.name() + " at " + address_.url + ": " + path; }

 private:
  http::Client& client_;
  weights::EngineAddress address_;
  weights::EngineClient asker_;
  std::chrono::milliseconds timeout_;
};

// "" where it is absent, null or no text.
std::string text_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void take_server_info(const Json& info, ServerFacts& facts) {
  const Json config = info.value("vllm_config", Json::object());
  if (!config.is_object()) return;
  const Json model = config.value("model_config", Json::object());
  if (model.is_object()) {
    const std::string dtype = text_member(model, "dtype");
    facts.dtype = dtype.starts_with(kTorchPrefix) ? dtype.substr(std::string(kTorchPrefix).size()) : dtype;
    facts.logprobs_mode = text_member(model, "logprobs_mode");
    facts.quantization = text_member(model, "quantization");
    facts.model_dir = text_member(model, "model");
    facts.sleep_mode = model.contains("enable_sleep_mode") && model["enable_sleep_mode"] == true;
  }
  const Json transfer = config.value("weight_transfer_config", Json());
  if (transfer.is_object()) facts.transfer_backend = text_member(transfer, "backend");
  const Json device = config.value("device_config", Json());
  if (device.is_object()) facts.device = text_member(device, "device");
  const Json env = info.value("vllm_env", Json::object());
  if (env.is_object() && env.contains("VLLM_ALLOW_INSECURE_SERIALIZATION")) {
    const Json& value = env["VLLM_ALLOW_INSECURE_SERIALIZATION"];
    facts.insecure_serialization = value == true || value == 1 || value == "1";
  }
}

std::string backend_text(const std::string& backend) {
  return backend.empty() ? "none" : backend;
}

}  // namespace

ServerFacts ask_server(http::Client& client, const weights::EngineAddress& address, std::chrono::milliseconds timeout) {
  Asking server(client, address, timeout);
  ServerFacts facts;
  facts.version = json_string(server.must_get("/version"), "version", server.what("/version"));
  const Json models = server.must_get("/v1/models");
  const Json& list = json_member(models, "data", server.what("/v1/models"));
  if (!list.is_array() || list.empty()) {
    throw Error(ErrorKind::process_failed, server.what("/v1/models") + ": expected a model, found none");
  }
  facts.served_model = json_string(list[0], "id", server.what("/v1/models"));
  if (const auto longest = list[0].find("max_model_len"); longest != list[0].end() && longest->is_number_integer()) {
    facts.max_model_len = longest->get<int64_t>();
  }
  const std::optional<Json> size = server.get("/get_world_size");
  if (!size) return facts;
  facts.dev_mode = true;
  facts.world_size = static_cast<int>(json_int(*size, "world_size", server.what("/get_world_size")));
  if (const std::optional<Json> info = server.get("/server_info?config_format=json")) take_server_info(*info, facts);
  return facts;
}

std::vector<std::string> server_problems(const ServerFacts& facts, const ServerNeeds& needs) {
  std::vector<std::string> problems;
  try {
    const vllm::Dialect dialect = vllm::dialect_of(facts.version);
    if (needs.packed_ipc && !dialect.ipc_takes_packed) {
      problems.push_back("vLLM " + facts.version +
                         " takes no packed buffers over CUDA IPC, which a trainer with tensor or pipeline parallelism "
                         "sends; use 0.22 or later, or a layout without them");
    }
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
  if (facts.max_model_len && *facts.max_model_len < needs.max_model_len) {
    problems.push_back("its sequences may have " + std::to_string(*facts.max_model_len) + " tokens, the run needs " +
                       std::to_string(needs.max_model_len) + " (--max-model-len)");
  }
  if (!facts.dev_mode) {
    problems.emplace_back(
        "it has none of the routes that pushes and pauses need; start it with VLLM_SERVER_DEV_MODE=1 in its "
        "environment");
    return problems;
  }
  if (facts.world_size != needs.world_size) {
    problems.push_back("it has " + std::to_string(facts.world_size) + " workers, the spec says " +
                       std::to_string(needs.world_size) + " (placement.rollout_num_gpus_per_engine)");
  }
  if (!facts.dtype.empty() && facts.dtype != needs.dtype) {
    problems.push_back("it computes in " + facts.dtype + ", the trainer sends " + needs.dtype + " (--dtype " +
                       needs.dtype + ", or trainer.dtype)");
  }
  if (!facts.quantization.empty()) {
    problems.push_back("its weights are quantized (" + facts.quantization +
                       "), which pushes cannot be; start it without --quantization, on a model that is not quantized");
  }
  if (!facts.logprobs_mode.empty() && facts.logprobs_mode != needs.logprobs_mode) {
    problems.push_back("its log-probs are " + facts.logprobs_mode + ", the spec says " + needs.logprobs_mode +
                       " (--logprobs-mode, or engine.logprobs_mode)");
  }
  if (!needs.transfer_backend.empty() && facts.transfer_backend != needs.transfer_backend) {
    problems.push_back("its weight transfer is configured for " + backend_text(facts.transfer_backend) +
                       ", the run needs " + needs.transfer_backend + R"( (--weight-transfer-config '{"backend":")" +
                       needs.transfer_backend + R"("}'))");
  }
  if (needs.transfer_backend == "ipc" && !facts.insecure_serialization) {
    problems.emplace_back(
        "it refuses pickles, which CUDA IPC handles are; start it with VLLM_ALLOW_INSECURE_SERIALIZATION=1");
  }
  if (needs.sleeps && !facts.sleep_mode) {
    problems.emplace_back(
        "it cannot give its memory up while the trainer works; start it with --enable-sleep-mode, or "
        "set offload.rollout to false");
  }
  return problems;
}

std::string server_warning(const ServerFacts& facts) {
  const vllm::Dialect dialect = vllm::dialect_of(facts.version);
  if (!dialect.newer_than_known) return "";
  return "vLLM " + facts.version + " is newer than what vime knows; it is spoken to like the newest known release";
}

}  // namespace vime::fleet
