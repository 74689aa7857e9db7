// The update session and the weight version.
#include "support/vllm/failures.hpp"
#include "support/vllm/routes.hpp"

namespace vime::stand_in {
namespace {

Json member(const Server& server, const http::ServerRequest& request, const char* key) {
  const Json body = body_object(request);
  if (!body.contains(key) || body[key].is_null()) {
    throw HttpError(400, server.flavour.has_versions
                             ? std::string("1 validation error: {'type': 'missing', 'loc': 'body.") + key +
                                   "', 'msg': 'Field required'}"
                             : std::string("Missing '") + key + "' in request body");
  }
  if (body.size() > 1) throw HttpError(400, request.path + " reads only '" + key + "' (vLLM would ignore the rest)");
  return body[key];
}

http::Response start(Server& server, const Call& call) {
  if (server.flavour.start_needs_body) {
    const Json body = body_object(call.request);
    for (const auto& [key, value] : body.items()) {
      if (key != "is_checkpoint_format") throw HttpError(400, "/start_weight_update has no key \"" + key + "\"");
      if (value != true) throw HttpError(400, "the stand-in takes weights in checkpoint format only");
    }
  }
  server.engine.start(call.planted);
  return json_response({{"message", "Weight update started"}});
}

http::Response finish(Server& server, const Call& call) {
  std::string version;
  bool named = false;
  if (server.flavour.has_versions && !call.request.body.empty()) {
    const Json body = body_object(call.request);
    for (const auto& [key, value] : body.items()) {
      if (key != "weight_version") throw HttpError(400, "/finish_weight_update has no key \"" + key + "\"");
      if (!value.is_string()) throw HttpError(400, "Input should be a valid string: weight_version");
      version = value.get<std::string>();
      named = true;
    }
  } else if (!call.request.body.empty() && call.request.body != "{}") {
    throw HttpError(400, "/finish_weight_update of this release reads no body (vLLM would ignore it)");
  }
  server.engine.finish(named ? &version : nullptr, call.planted);
  return json_response({{"message", "Weight update finished"}});
}

}  // namespace

void Routes::add_weights(Server& server) {
  add("POST", "/init_weight_transfer_engine", [&server](const Call& call) {
    server.engine.init(member(server, call.request, "init_info"), call.planted);
    return json_response({{"message", "Weight transfer initialized"}});
  });
  add("POST", "/start_weight_update", [&server](const Call& call) { return start(server, call); });
  add("POST", "/update_weights", [&server](const Call& call) {
    server.engine.update(member(server, call.request, "update_info"), call.planted);
    return json_response({{"message", "Weights updated"}});
  });
  add("POST", "/finish_weight_update", [&server](const Call& call) { return finish(server, call); });
  add("GET", "/get_world_size", [&server](const Call& call) {
    check_query(call.request, {"include_dp"});
    query_flag(call.request, "include_dp", true);
    return json_response({{"world_size", server.arguments.workers()}});
  });
  if (server.flavour.aborts_and_drafts) {
    add("POST", "/start_draft_weight_update", [](const Call&) -> http::Response {
      throw WorkerError("Call to collective_rpc method failed: no draft model is configured");
    });
  }
  if (!server.flavour.has_versions) return;
  add("GET", "/weight_info", [&server](const Call&) {
    return json_response({{"weight_version", server.engine.version()}});
  });
  add("POST", "/update_weight_version", [&server](const Call& call) {
    const Json version = member(server, call.request, "new_version");
    if (!version.is_string()) throw HttpError(400, "Input should be a valid string: new_version");
    server.engine.set_version(version.get<std::string>());
    return json_response({{"success", true}, {"new_version", version}});
  });
}

}  // namespace vime::stand_in
