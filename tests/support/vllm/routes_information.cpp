// What can be asked of a server without touching it, and its tokenizer.
#include <ctime>

#include "support/vllm/failures.hpp"
#include "support/vllm/routes.hpp"

namespace vime::stand_in {
namespace {

Json model_list(const Server& server, std::time_t created) {
  Json models = Json::array();
  for (const std::string& name : server.arguments.served_names) {
    models.push_back({{"id", name},
                      {"object", "model"},
                      {"created", created},
                      {"owned_by", "vllm"},
                      {"root", server.arguments.model},
                      {"parent", nullptr},
                      {"max_model_len", server.max_model_len},
                      {"permission", Json::array()}});
  }
  return {{"object", "list"}, {"data", std::move(models)}};
}

const text::Tokenizer& tokenizer_of(const Server& server) {
  if (!server.tokenizer) throw HttpError(500, "the stand-in found no tokenizer in the model's folder");
  return *server.tokenizer;
}

http::Response tokenize(const Server& server, const http::ServerRequest& request) {
  const Json body = body_object(request);
  if (!body.contains("prompt") || !body["prompt"].is_string())
    throw HttpError(400, "the stand-in tokenizes {\"prompt\": text} only");
  const bool special = body.value("add_special_tokens", true);
  const std::vector<int64_t> ids = tokenizer_of(server).encode(body["prompt"].get<std::string>(), special);
  Json strings = nullptr;
  if (body.value("return_token_strs", false)) {
    strings = Json::array();
    for (const int64_t id : ids) strings.push_back(tokenizer_of(server).decode(std::vector<int64_t>{id}, false));
  }
  return json_response(
      {{"count", ids.size()}, {"max_model_len", server.max_model_len}, {"tokens", ids}, {"token_strs", strings}});
}

http::Response detokenize(const Server& server, const http::ServerRequest& request) {
  const Json body = body_object(request);
  std::vector<int64_t> ids;
  if (!body.contains("tokens") || !body["tokens"].is_array()) throw HttpError(400, "Field required: tokens");
  for (const Json& id : body["tokens"]) {
    if (!id.is_number_unsigned()) throw HttpError(400, "Input should be a valid integer: tokens");
    ids.push_back(id.get<int64_t>());
  }
  return json_response({{"prompt", tokenizer_of(server).decode(ids, false)}});
}

std::string metrics_text(const Server& server) {
  const std::string label = "{engine=\"0\",model_name=\"" + server.arguments.served_names.front() + "\"} ";
  return "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running" + label +
         std::to_string(server.engine.load()) + ".0\n";
}

}  // namespace

void Routes::add_information(Server& server) {
  const Route health = [&server](const Call&) {
    return server.engine.is_dead() ? http::Response{503, "", "application/json"} : empty_response();
  };
  add("GET", "/health", health);
  add("GET", "/ping", health);
  add("POST", "/ping", health);
  add("GET", "/version", [&server](const Call&) { return json_response({{"version", server.flavour.version}}); });
  add("GET", "/load", [&server](const Call&) { return json_response({{"server_load", server.engine.load()}}); });
  add("GET", "/metrics", [&server](const Call&) {
    return http::Response{200, metrics_text(server), "text/plain; version=1.0.0; charset=utf-8"};
  });
  add("GET", "/v1/models",
      [&server, created = std::time(nullptr)](const Call&) { return json_response(model_list(server, created)); });
  add("POST", "/tokenize", [&server](const Call& call) { return tokenize(server, call.request); });
  add("POST", "/detokenize", [&server](const Call& call) { return detokenize(server, call.request); });
}

}  // namespace vime::stand_in
