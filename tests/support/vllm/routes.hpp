// The route table of a flavour: which paths there are, what they read strictly, and how failures are answered. Handlers
// run on connection threads and may block.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "http/server.hpp"
#include "support/vllm/engine.hpp"
#include "support/vllm/environment.hpp"
#include "support/vllm/flavour.hpp"
#include "support/vllm/front.hpp"
#include "text/tokenizer.hpp"

namespace vime::stand_in {

struct Server {
  ServeArguments arguments;
  Environment environment;
  Flavour flavour;
  Engine& engine;
  Faults& faults;
  Trace& trace;
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: none
  Json generation_defaults = Json::object();         // of sampling fields that a completion leaves out
};

struct Call {
  const http::ServerRequest& request;
  Gone gone;
  std::string planted;                      // text that a worker is to raise; empty: none
  std::optional<int64_t> abort_after = {};  // tokens, of a generating call
};

// WorkerError, EngineDeath and HttpError become error answers.
using Route = std::function<http::Response(const Call&)>;

class Routes {
 public:
  explicit Routes(Server& server);
  // Faults, the API key, the table, the trace.
  Answer handle(const http::ServerRequest& request, const Gone& gone) const;

 private:
  void add(const std::string& method, const std::string& path, Route route);
  void add_information(Server& server);  // health, version, models, load, metrics, tokenize, detokenize
  void add_control(Server& server);      // pause, sleep, prefix cache, collective_rpc
  void add_weights(Server& server);      // the update session and versions
  void add_generation(Server& server);
  http::Response answer(const Call& call) const;

  Server& server_;
  std::map<std::string, std::map<std::string, Route>> routes_;  // path, method
};

http::Response json_response(const Json& body, int status = 200);
http::Response empty_response();
// {"error": {"message", "type", "param", "code"}}
http::Response error_response(int status, const std::string& message);

// The body as an object; an empty or malformed one is HttpError{400}.
Json body_object(const http::ServerRequest& request);
// Of the routes that check it.
void check_content_type(const http::ServerRequest& request);
// Queries that FastAPI would ignore are a client's mistake here, and so is a body where none is read.
void check_query(const http::ServerRequest& request, const std::vector<std::string>& known);
void check_no_body(const http::ServerRequest& request);
bool query_flag(const http::ServerRequest& request, const std::string& key, bool otherwise);

}  // namespace vime::stand_in
