// What all routes share, and those that only tell something.
#include "engine/routes.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/strings.hpp"
#include "engine/fields.hpp"

namespace vime::engine {
namespace {

constexpr const char* kPrometheusText = "text/plain; version=0.0.4; charset=utf-8";

// Names and label of vLLM's metrics, so that what reads those reads these.
std::string metrics_text(const SchedulerCounts& counts, const std::string& model) {
  std::string escaped;
  for (const char c : model) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  const std::string label = "{model_name=\"" + escaped + "\"} ";
  std::string text;
  const auto add = [&](const char* name, const char* type, auto value) {
    text += std::string("# TYPE ") + name + " " + type + "\n" + name + label + std::to_string(value) + "\n";
  };
  add("vllm:num_requests_running", "gauge", counts.running);
  add("vllm:num_requests_waiting", "gauge", counts.waiting);
  add("vllm:prompt_tokens_total", "counter", counts.prompt_tokens);
  add("vllm:generation_tokens_total", "counter", counts.generation_tokens);
  add("vime:engine_steps_total", "counter", counts.steps);
  text += "# TYPE vllm:request_success_total counter\n";
  for (const FinishReason reason : {FinishReason::stop, FinishReason::length, FinishReason::abort}) {
    text += std::string("vllm:request_success_total{finished_reason=\"") + finish_reason_name(reason) +
            "\",model_name=\"" + escaped + "\"} " + std::to_string(counts.finished[static_cast<int>(reason)]) + "\n";
  }
  return text;
}

http::Response tokenize(const http::ServerRequest& request, const Shared& shared) {
  const Json body = body_object(request, true);
  Fields fields(body, "tokenize request");
  fields.ignore("model");
  const auto prompt = fields.text("prompt");
  const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  const bool with_strings = fields.boolean("return_token_strs").value_or(false);
  fields.neutral("messages", {nullptr});
  fields.finish();
  if (!prompt) throw Error(ErrorKind::refused, "tokenize request: \"prompt\" is missing");
  if (!shared.text.encode) throw Error(ErrorKind::refused, "this engine has no tokenizer");
  const std::vector<int32_t> ids = shared.text.encode(*prompt, add_special_tokens);
  Json strings = nullptr;
  if (with_strings) {
    strings = Json::array();
    for (const int32_t id : ids) strings.push_back(shared.text.decode({id}, false));
  }
  return json_reply(
      {{"count", ids.size()}, {"max_model_len", shared.model.max_model_len}, {"tokens", ids}, {"token_strs", strings}});
}

http::Response detokenize(const http::ServerRequest& request, const Shared& shared) {
  const Json body = body_object(request, true);
  Fields fields(body, "detokenize request");
  fields.ignore("model");
  const auto tokens = fields.ids("tokens");
  fields.finish();
  if (!tokens) throw Error(ErrorKind::refused, "detokenize request: \"tokens\" is missing");
  if (!shared.text.decode) throw Error(ErrorKind::refused, "this engine has no tokenizer");
  return json_reply({{"prompt", shared.text.decode(*tokens, false)}});
}

}  // namespace

void control_route(http::Server& server, Shared& shared, const std::string& method, const std::string& path,
                   Parse parse) {
  server.route(method, path,
               [&shared, parse = std::move(parse)](const http::ServerRequest& request, http::Responder responder) {
                 shared.engine.push([control = parse(request), responder](EngineCore& core) {
                   try {
                     control(core, responder);
                   } catch (const std::exception& error) {
                     responder.respond(http::error_response(500, error.what()));
                   }
                 });
               });
}

http::Response json_reply(const Json& body) {
  return {200, body.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json"};
}

void answer(const http::Responder& responder, const Verdict& verdict, const Json& success) {
  responder.respond(verdict.ok() ? json_reply(success) : http::error_response(verdict.status, verdict.error));
}

void answer_empty(const http::Responder& responder, const Verdict& verdict) {
  responder.respond(verdict.ok() ? http::Response{} : http::error_response(verdict.status, verdict.error));
}

Json body_object(const http::ServerRequest& request, bool required) {
  if (request.body.empty() && !required) return Json::object();
  Json body = parse_json(request.body, "request body", ErrorKind::refused);
  if (!body.is_object()) throw Error(ErrorKind::refused, "request body: expected a JSON object");
  return body;
}

void check_query(const http::ServerRequest& request, const std::vector<std::string>& known) {
  for (const auto& [key, value] : request.query) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    throw Error(ErrorKind::refused, request.path + ": unknown query key \"" + key + "\"" +
                                        (near.empty() ? "" : " (did you mean \"" + near + "\"?)"));
  }
}

bool query_flag(const http::ServerRequest& request, const std::string& key, bool otherwise) {
  const std::string value = request.query_value(key, otherwise ? "true" : "false");
  if (value == "true" || value == "True" || value == "1") return true;
  if (value == "false" || value == "False" || value == "0") return false;
  throw Error(ErrorKind::refused,
              request.path + ": query key \"" + key + "\": expected true or false, found \"" + value + "\"");
}

void add_information_routes(http::Server& server, Shared& shared) {
  const auto health = [&shared](const http::ServerRequest&, const http::Responder& responder) {
    responder.respond({shared.board.failed() ? 503 : 200, "", "application/json"});
  };
  server.route("GET", "/health", health);
  server.route("GET", "/ping", health);
  server.route("POST", "/ping", health);
  server.route("GET", "/version", [](const http::ServerRequest&, const http::Responder& responder) {
    responder.respond(json_reply({{"version", kEngineVersion}}));
  });
  server.route("GET", "/v1/models",
               [&shared, created = std::time(nullptr)](const http::ServerRequest&, const http::Responder& responder) {
                 const Json model = {{"id", shared.model.name},
                                     {"object", "model"},
                                     {"created", created},
                                     {"owned_by", "vime"},
                                     {"root", shared.options.model_dir},
                                     {"parent", nullptr},
                                     {"max_model_len", shared.model.max_model_len},
                                     {"permission", Json::array()}};
                 responder.respond(json_reply({{"object", "list"}, {"data", Json::array({model})}}));
               });
  server.route("GET", "/load", [&shared](const http::ServerRequest&, const http::Responder& responder) {
    responder.respond(json_reply({{"server_load", shared.board.counts().requests}}));
  });
  server.route("GET", "/metrics", [&shared](const http::ServerRequest&, const http::Responder& responder) {
    responder.respond({200, metrics_text(shared.board.counts(), shared.model.name), kPrometheusText});
  });
  server.route("POST", "/tokenize", [&shared](const http::ServerRequest& request, const http::Responder& responder) {
    responder.respond(tokenize(request, shared));
  });
  server.route("POST", "/detokenize", [&shared](const http::ServerRequest& request, const http::Responder& responder) {
    responder.respond(detokenize(request, shared));
  });
}

}  // namespace vime::engine
