#include "support/vllm/routes.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/strings.hpp"
#include "support/vllm/failures.hpp"

namespace vime::stand_in {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 400:
      return "BadRequestError";
    case 401:
      return "Unauthorized";
    case 404:
      return "NotFoundError";
    case 403:
      return "PermissionDeniedError";
    default:
      return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

bool is_guarded(const std::string& path) {
  return path.starts_with("/v1") || path.starts_with("/v2") || path.starts_with("/inference");
}

std::string target_of(const http::ServerRequest& request) {
  std::string target = request.path;
  for (const auto& [key, value] : request.query) target += (target == request.path ? "?" : "&") + key + "=" + value;
  return target;
}

bool is_weight_phase(const std::string& phase) {
  static const std::vector<std::string> phases = {"init", "start", "update", "finish", "reload"};
  return std::find(phases.begin(), phases.end(), phase) != phases.end();
}

}  // namespace

http::Response json_response(const Json& body, int status) {
  return {status, body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json"};
}

http::Response empty_response() {
  return {200, "", "application/json"};
}

http::Response error_response(int status, const std::string& message) {
  return json_response(
      {{"error", {{"message", message}, {"type", type_of(status)}, {"param", nullptr}, {"code", status}}}}, status);
}

Json body_object(const http::ServerRequest& request) {
  Json body = try_parse_json(request.body);
  if (body.is_discarded()) throw HttpError(400, "Invalid JSON format");
  if (!body.is_object()) throw HttpError(400, "Input should be a valid dictionary");
  return body;
}

void check_content_type(const http::ServerRequest& request) {
  if (request.header("content-type").starts_with("application/json")) return;
  throw HttpError(400, "Unsupported Media Type: Only 'application/json' is allowed");
}

void check_query(const http::ServerRequest& request, const std::vector<std::string>& known) {
  for (const auto& [key, value] : request.query) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw HttpError(400, request.path + " has no query parameter \"" + key + "\" (vLLM would ignore it)");
  }
}

void check_no_body(const http::ServerRequest& request) {
  if (!request.body.empty() && request.body != "{}")
    throw HttpError(400, request.path + " reads no body (vLLM would ignore it): its parameters go into the query");
}

bool query_flag(const http::ServerRequest& request, const std::string& key, bool otherwise) {
  const std::string value = request.query_value(key, otherwise ? "true" : "false");
  for (const char* yes : {"true", "True", "1", "yes", "on"}) {
    if (value == yes) return true;
  }
  for (const char* no : {"false", "False", "0", "no", "off"}) {
    if (value == no) return false;
  }
  throw HttpError(400, "[{'type': 'bool_parsing', 'loc': ('query', '" + key +
                           "'), 'msg': 'Input should be a valid boolean, unable to interpret input', 'input': '" +
                           value + "'}]");
}

Routes::Routes(Server& server) : server_(server) {
  add_information(server);
  add_generation(server);
  if (!server.environment.dev_mode) return;
  add_control(server);
  add_weights(server);
}

void Routes::add(const std::string& method, const std::string& path, Route route) {
  routes_[path][method] = std::move(route);
}

http::Response Routes::answer(const Call& call) const {
  const http::ServerRequest& request = call.request;
  const std::string& key = server_.arguments.api_key;
  if (!key.empty() && is_guarded(request.path) && request.header("authorization") != "Bearer " + key)
    return json_response({{"error", "Unauthorized"}}, 401);
  const auto methods = routes_.find(request.path);
  if (methods == routes_.end()) return json_response({{"detail", "Not Found"}}, 404);
  const auto route = methods->second.find(request.method);
  if (route == methods->second.end()) return json_response({{"detail", "Method Not Allowed"}}, 405);
  try {
    return route->second(call);
  } catch (const HttpError& error) {
    return error_response(error.status(), error.what());
  } catch (const std::exception& error) {
    return error_response(500, error.what());
  }
}

Answer Routes::handle(const http::ServerRequest& request, const Gone& gone) const {
  const std::string phase = phase_of(request.path);
  const std::optional<std::string> fault = server_.faults.next(phase);
  Call call{request, gone, ""};
  Answer answer;
  if (fault == "death") {
    server_.trace.line(request.method + " " + target_of(request) + " death");
    ::kill(::getpid(), SIGKILL);
  }
  if (fault == "hang") {
    while (!gone()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    answer.ending = Ending::reset;
    return answer;
  }
  if (fault == "reset") {
    answer.ending = Ending::reset;
    return answer;
  }
  if (fault == "abort") call.abort_after = 1;
  if (fault == "abort_at_once") call.abort_after = 0;
  const bool is_status = fault && fault != "half" && !call.abort_after;
  if (is_status && is_weight_phase(phase)) call.planted = "planted failure in " + phase;
  if (is_status && call.planted.empty()) {
    answer.response = error_response(std::stoi(*fault), "planted failure in " + phase);
  } else {
    answer.response = this->answer(call);
    if (is_status && answer.response.status == 500)
      answer.response = error_response(std::stoi(*fault), parse_json(answer.response.body)["error"]["message"]);
  }
  if (fault == "half") answer.ending = Ending::half;
  server_.trace.line(request.method + " " + target_of(request) + " " + std::to_string(answer.response.status));
  return answer;
}

}  // namespace vime::stand_in
