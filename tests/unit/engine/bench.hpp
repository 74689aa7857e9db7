// A served fake engine and a client for it.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/json.hpp"
#include "engine/server.hpp"
#include "fake_executor.hpp"
#include "http/client.hpp"

namespace vime::engine {

// Words of one digit: "3 14 15" is three tokens.
inline TextCodec number_codec() {
  TextCodec codec;
  codec.encode = [](const std::string& text, bool add_special_tokens) {
    std::vector<int32_t> ids;
    if (add_special_tokens) ids.push_back(1);
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      ids.push_back(std::stoi(text.substr(at, end - at)));
      at = end + 1;
    }
    return ids;
  };
  codec.decode = [](const std::vector<int32_t>& ids, bool) {
    std::string text;
    for (const int32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
    return text;
  };
  return codec;
}

class Bench {
 public:
  explicit Bench(bool weights_loaded = true) {
    options.model_name = "/models/m";
    options.model_dir = "/models/m";
    options.weights_loaded = weights_loaded;
  }
  ~Bench() { fake.release(); }

  void serve() {
    options.vocab_size = fake.vocab;
    server = std::make_unique<EngineServer>(options, fake, number_codec());
    server->start();
  }

  std::future<http::Outcome> send(const std::string& method, const std::string& target, const std::string& body = "",
                                  const http::Headers& headers = {}) {
    if (!server) serve();
    http::Request request;
    request.method = method;
    request.url = "http://127.0.0.1:" + std::to_string(server->port()) + target;
    request.body = body;
    request.headers = headers;
    request.what = method + " " + target;
    return client.send(std::move(request));
  }
  http::Reply get(const std::string& target) { return reply(send("GET", target)); }
  http::Reply post(const std::string& target, const std::string& body = "") {
    return reply(send("POST", target, body));
  }
  std::future<http::Outcome> complete(const Json& body) { return send("POST", "/v1/completions", body.dump()); }

  static http::Reply reply(std::future<http::Outcome> future) {
    const http::Outcome outcome = future.get();
    REQUIRE_MESSAGE(outcome.answered, outcome.error);
    return outcome.reply;
  }
  static Json json(std::future<http::Outcome> future) {
    const http::Reply answer = reply(std::move(future));
    REQUIRE_MESSAGE(answer.status == 200, answer.body);
    return parse_json(answer.body);
  }
  Json get_json(const std::string& target) { return json(send("GET", target)); }
  Json post_json(const std::string& target, const std::string& body = "") { return json(send("POST", target, body)); }
  static std::string message(const http::Reply& answer) {
    const Json body = parse_json(answer.body);
    return body["error"].is_string() ? body["error"].get<std::string>() : body["error"]["message"].get<std::string>();
  }
  static bool answered(const std::future<http::Outcome>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void push(const std::string& version) {
    post_json("/start_weight_update");
    post_json("/update_weights", R"({"update_info":{"names":[]}})");
    post_json("/finish_weight_update", R"({"weight_version":")" + version + "\"}");
  }

  FakeExecutor fake;
  ServerOptions options;
  std::unique_ptr<EngineServer> server;
  http::Client client;  // ends its requests before the server goes
};

}  // namespace vime::engine
