// Error bodies, written and read.
#include <exception>

#include "base/json.hpp"
#include "base/strings.hpp"
#include "http/client.hpp"
#include "http/server.hpp"

namespace vime::http {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 400:
      return "BadRequestError";
    case 403:
      return "PermissionDeniedError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 413:
      return "ContentTooLargeError";
    case 431:
      return "HeaderTooLargeError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

// "" when the body is not one of the known forms.
std::string message_of(const std::string& body) {
  const Json json = try_parse_json(body);
  if (!json.is_object()) return "";
  for (const char* key : {"error", "message", "detail"}) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_object() && found->contains("message") && (*found)["message"].is_string()) {
      return (*found)["message"].get<std::string>();
    }
    return found->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return "";
}

}  // namespace

std::string status_text(const Reply& reply) {
  const std::string status = "HTTP " + std::to_string(reply.status);
  constexpr std::size_t kLongest = 300;
  std::string message = message_of(reply.body);
  if (message.empty()) {
    message = trim(std::string_view(reply.body).substr(0, kLongest));
    if (reply.body.size() > kLongest) message += "...";
  }
  return message.empty() ? status : status + ": " + message;
}

Response error_response(int status, const std::string& message) {
  const Json body = {
      {"error", {{"message", message}, {"type", error_type(status)}, {"param", nullptr}, {"code", status}}}};
  // A message may quote bytes of the request that are not UTF-8.
  return Response{status, body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json"};
}

}  // namespace vime::http
