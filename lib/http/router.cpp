#include "http/router.hpp"

#include <exception>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"

namespace vime::http {

void Router::add(const std::string& method, const std::string& path, Handler handler) {
  const bool added = handlers_[path].emplace(method, std::move(handler)).second;
  VIME_CHECK(added, "route " + method + " " + path + " added twice");
}

std::string Router::allowed_methods(const std::string& path) const {
  const auto found = handlers_.find(path);
  if (found == handlers_.end()) return "";
  std::vector<std::string> methods;
  for (const auto& [method, handler] : found->second) methods.push_back(method);
  return join(methods, ", ");
}

void Router::dispatch(const ServerRequest& request, const Responder& responder) const {
  const auto methods = handlers_.find(request.path);
  if (methods == handlers_.end()) {
    responder.respond(error_response(404, "no route " + request.path));
    return;
  }
  const auto found = methods->second.find(request.method);
  if (found == methods->second.end()) {
    responder.respond(error_response(
        405, request.path + " does not take " + request.method + ", expected " + allowed_methods(request.path)));
    return;
  }
  try {
    found->second(request, responder);
  } catch (const Error& e) {
    responder.respond(error_response(e.kind() == ErrorKind::refused ? 400 : 500, e.what()));
  } catch (const std::exception& e) {
    log::error("http", request.method + " " + request.path + ": " + e.what());
    responder.respond(error_response(500, e.what()));
  } catch (...) {
    log::error("http", request.method + " " + request.path + ": the handler threw something unknown");
    responder.respond(error_response(500, "the handler failed"));
  }
}

std::string ServerRequest::query_value(const std::string& key, const std::string& otherwise) const {
  // find() of a multimap may give any of the equal keys; lower_bound() gives the first.
  const auto found = query.lower_bound(key);
  return found == query.end() || found->first != key ? otherwise : found->second;
}

std::string ServerRequest::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

}  // namespace vime::http
