// Pause and sleep, the prefix cache, calls of worker methods: routes that a server has in development mode only.
#include <chrono>
#include <thread>

#include "support/vllm/failures.hpp"
#include "support/vllm/routes.hpp"

namespace vime::stand_in {
namespace {

// A server that has paused answers later, so that what it has aborted is answered before.
constexpr std::chrono::milliseconds kLinger{20};

PauseMode mode_of(const http::ServerRequest& request, bool knows_deprecated) {
  const bool wait = knows_deprecated && query_flag(request, "wait_for_inflight_requests", false);
  const std::string mode = request.query_value("mode", wait ? "wait" : "abort");
  if (mode == "abort") return PauseMode::abort;
  if (mode == "wait") return PauseMode::wait;
  if (mode == "keep") return PauseMode::keep;
  throw HttpError(400,
                  "[{'type': 'literal_error', 'loc': ('query', 'mode'), 'msg': \"Input should be 'abort', 'wait' "
                  "or 'keep'\", 'input': '" +
                      mode + "'}]");
}

// What of vLLM's configuration its clients look at.
Json config_of(const Server& server) {
  const ServeArguments& arguments = server.arguments;
  const Json transfer =
      arguments.transfer_backend.empty() ? Json(nullptr) : Json({{"backend", arguments.transfer_backend}});
  return {{"model_config",
           {{"model", arguments.model},
            {"dtype", "torch." + (arguments.dtype == "auto" ? "float32" : arguments.dtype)},
            {"quantization", nullptr},
            {"logprobs_mode", arguments.logprobs_mode},
            {"enable_sleep_mode", arguments.sleep_mode}}},
          {"device_config", {{"device", server.environment.uuids.empty() ? "cpu" : "cuda"}}},
          {"weight_transfer_config", transfer}};
}

http::Response pause(Server& server, const http::ServerRequest& request) {
  check_query(request, {"mode", "clear_cache", "wait_for_inflight_requests"});
  check_no_body(request);
  const PauseMode mode = mode_of(request, true);
  const bool clear_cache = query_flag(request, "clear_cache", true);
  try {
    server.engine.pause(mode, clear_cache);
  } catch (const std::exception& error) {
    return json_response({{"error", std::string("Failed to pause generation: ") + error.what()}}, 500);
  }
  std::this_thread::sleep_for(kLinger);
  return json_response({{"status", "paused"}});
}

http::Response resume(Server& server, const http::ServerRequest& request) {
  check_query(request, {});
  check_no_body(request);
  try {
    server.engine.resume();
  } catch (const std::exception& error) {
    return json_response({{"error", std::string("Failed to resume generation: ") + error.what()}}, 500);
  }
  return json_response({{"status", "resumed"}});
}

http::Response sleep(Server& server, const http::ServerRequest& request) {
  check_query(request, {"level", "mode"});
  check_no_body(request);
  const std::string level = request.query_value("level", "1");
  if (level != "0" && level != "1" && level != "2") throw HttpError(400, "invalid sleep level: " + level);
  server.engine.sleep(level[0] - '0', mode_of(request, false));
  if (!server.flavour.has_versions) return empty_response();
  return json_response({{"status", "sleeping"}, {"level", level[0] - '0'}});
}

http::Response wake(Server& server, const http::ServerRequest& request) {
  check_query(request, {"tags"});
  check_no_body(request);
  std::vector<std::string> tags;
  const auto [first, last] = request.query.equal_range("tags");
  for (auto tag = first; tag != last; ++tag) {
    if (tag->second != "weights" && tag->second != "kv_cache" && tag->second != "scheduling")
      throw HttpError(400, "unknown tag " + tag->second + " (vLLM would only log a warning)");
    tags.push_back(tag->second);
  }
  server.engine.wake(tags);
  if (!server.flavour.has_versions) return empty_response();
  return json_response({{"status", server.engine.is_sleeping() ? "sleeping" : "awake"},
                        {"tags", tags.empty() ? Json(nullptr) : Json(tags)}});
}

http::Response collective_rpc(Server& server, const Call& call) {
  const Json body = body_object(call.request);
  if (!body.contains("method") || !body["method"].is_string()) throw HttpError(400, "Missing 'method' in request body");
  for (const auto& [key, value] : body.items()) {
    if (key != "method" && key != "args" && key != "kwargs" && key != "timeout")
      throw HttpError(400, "/collective_rpc has no key \"" + key + "\" (vLLM would ignore it)");
  }
  const Json arguments = body.value("args", Json::array());
  const Json named = body.value("kwargs", Json::object());
  if (!arguments.is_array() || !named.is_object()) throw HttpError(400, "args is a list, kwargs an object");
  return json_response(
      {{"results", server.engine.collective_rpc(body["method"].get<std::string>(), arguments, named, call.planted)}});
}

}  // namespace

void Routes::add_control(Server& server) {
  add("POST", "/pause", [&server](const Call& call) { return pause(server, call.request); });
  add("POST", "/resume", [&server](const Call& call) { return resume(server, call.request); });
  add("GET", "/is_paused", [&server](const Call&) {
    return json_response({{"is_paused", server.engine.is_paused()}});
  });
  add("POST", "/sleep", [&server](const Call& call) { return sleep(server, call.request); });
  add("POST", "/wake_up", [&server](const Call& call) { return wake(server, call.request); });
  add("GET", "/is_sleeping", [&server](const Call&) {
    return json_response({{"is_sleeping", server.engine.is_sleeping()}});
  });
  add("POST", "/reset_prefix_cache", [&server](const Call& call) {
    check_query(call.request, {"reset_running_requests", "reset_external"});
    server.engine.reset_prefix_cache(query_flag(call.request, "reset_running_requests", false));
    return server.flavour.has_versions ? json_response({{"success", true}}) : empty_response();
  });
  for (const char* path : {"/reset_mm_cache", "/reset_encoder_cache"})
    add("POST", path, [](const Call&) { return empty_response(); });
  add("GET", "/server_info", [&server](const Call& call) {
    check_query(call.request, {"config_format"});
    const auto format = call.request.query.find("config_format");
    const bool json = format != call.request.query.end() && format->second == "json";
    return json_response(
        {{"vllm_config", json ? config_of(server) : Json("model='" + server.arguments.model + "'")},
         {"vllm_env", {{"VLLM_ALLOW_INSECURE_SERIALIZATION", server.environment.insecure_serialization}}},
         {"system_env", Json::object()}});
  });
  add("POST", "/collective_rpc", [&server](const Call& call) { return collective_rpc(server, call); });
}

}  // namespace vime::stand_in
