// The weight update session, versions, checksums and reload.
#include "base/strings.hpp"
#include "engine/fields.hpp"
#include "engine/routes.hpp"

namespace vime::engine {
namespace {

// {"<key>": {...}}; missing or of another type is 400.
Json required_object(const http::ServerRequest& request, const char* key) {
  const Json body = body_object(request, true);
  Fields fields(body, request.path);
  const Json* value = fields.find(key);
  fields.finish();
  if (value == nullptr) throw Error(ErrorKind::refused, std::string("Missing '") + key + "' in request body");
  if (!value->is_object()) fields.refuse(key, "an object");
  return *value;
}

Control parse_finish(const http::ServerRequest& request) {
  const Json body = body_object(request, false);
  Fields fields(body, request.path);
  const auto version = fields.text("weight_version");
  fields.finish();
  if (version && version->empty()) fields.refuse("weight_version", "a string that is not empty");
  return [version = version.value_or("")](EngineCore& core, const http::Responder& responder) {
    answer(responder, core.finish_update(version), {{"message", "Weight update finished"}});
  };
}

Control parse_new_version(const http::ServerRequest& request) {
  const Json body = body_object(request, true);
  Fields fields(body, request.path);
  const auto version = fields.text("new_version");
  fields.finish();
  if (!version || version->empty())
    throw Error(ErrorKind::refused, request.path + ": \"new_version\" is missing or empty");
  return [version = *version](EngineCore& core, const http::Responder& responder) {
    answer(responder, core.set_version(version), {{"success", true}, {"new_version", version}});
  };
}

Control parse_checker(const http::ServerRequest& request) {
  const Json body = body_object(request, true);
  Fields fields(body, request.path);
  const auto action = fields.text("action");
  fields.finish();
  if (!action) throw Error(ErrorKind::refused, request.path + ": \"action\" is missing");
  if (*action != "checksum") fields.refuse("action", "\"checksum\"");
  return [](EngineCore& core, const http::Responder& responder) {
    std::map<std::string, uint64_t> sums;
    const Verdict verdict = core.checksums(sums);
    Json named = Json::object();
    for (const auto& [name, sum] : sums) named[name] = hex(sum);
    answer(responder, verdict, {{"checksums", std::move(named)}});
  };
}

Control parse_rpc(const http::ServerRequest& request) {
  const Json body = body_object(request, true);
  Fields fields(body, request.path);
  const auto method = fields.text("method");
  fields.neutral("args", {Json::array()});
  const Json* kwargs = fields.find("kwargs");
  const auto timeout = fields.number("timeout");  // workers have deadlines of their own
  fields.finish();
  if (timeout && *timeout <= 0) fields.refuse("timeout", "a number > 0");
  if (!method) throw Error(ErrorKind::refused, request.path + ": \"method\" is missing");
  if (*method != "reload_weights") fields.refuse("method", "\"reload_weights\"");
  std::string folder;
  if (kwargs != nullptr) {
    Fields named(*kwargs, request.path + ": \"kwargs\"");
    folder = named.text("weights_path").value_or("");
    named.finish();
  }
  return [folder](EngineCore& core, const http::Responder& responder) {
    const Verdict verdict = core.reload(folder);
    Json results = Json::array();
    for (int worker = 0; worker < core.world_size(); ++worker) results.push_back(nullptr);
    answer(responder, verdict, {{"results", std::move(results)}});
  };
}

}  // namespace

void add_weight_routes(http::Server& server, Shared& shared) {
  control_route(
      server, shared, "POST", "/init_weight_transfer_engine", [](const http::ServerRequest& request) -> Control {
        return [info = required_object(request, "init_info")](EngineCore& core, const http::Responder& responder) {
          answer(responder, core.init_transfer(info), {{"message", "Weight transfer initialized"}});
        };
      });
  control_route(server, shared, "POST", "/start_weight_update", [](const http::ServerRequest&) -> Control {
    return [](EngineCore& core, const http::Responder& responder) {
      answer(responder, core.start_update(), {{"message", "Weight update started"}});
    };
  });
  control_route(server, shared, "POST", "/update_weights", [](const http::ServerRequest& request) -> Control {
    return [info = required_object(request, "update_info")](EngineCore& core, const http::Responder& responder) {
      answer(responder, core.update(info), {{"message", "Weights updated"}});
    };
  });
  control_route(server, shared, "POST", "/finish_weight_update", parse_finish);
  control_route(server, shared, "POST", "/update_weight_version", parse_new_version);
  control_route(server, shared, "GET", "/weight_info", [](const http::ServerRequest&) -> Control {
    return [](EngineCore& core, const http::Responder& responder) {
      answer(responder, {}, {{"weight_version", core.version()}});
    };
  });
  control_route(server, shared, "POST", "/weight_checker", parse_checker);
  control_route(server, shared, "GET", "/get_world_size", [](const http::ServerRequest& request) -> Control {
    check_query(request, {"include_dp"});
    query_flag(request, "include_dp", true);
    return [](EngineCore& core, const http::Responder& responder) {
      answer(responder, {}, {{"world_size", core.world_size()}});
    };
  });
  control_route(server, shared, "POST", "/collective_rpc", parse_rpc);
}

}  // namespace vime::engine
