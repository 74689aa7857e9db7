// The routes of the embedded engine and what they share. Handlers parse on the HTTP thread and leave the rest to the
// engine thread.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "engine/core.hpp"
#include "engine/parse_request.hpp"
#include "engine/server.hpp"
#include "engine/task_queue.hpp"
#include "http/server.hpp"

namespace vime::engine {

using CoreTask = std::function<void(EngineCore&)>;

// Figures that the HTTP thread may read while the engine thread is in a step.
class Board {
 public:
  void publish(const SchedulerCounts& counts, bool failed) {
    const std::lock_guard lock(mutex_);
    counts_ = counts;
    failed_ = failed;
  }
  SchedulerCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  bool failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }

 private:
  mutable std::mutex mutex_;
  SchedulerCounts counts_;
  bool failed_ = false;
};

struct Shared {
  ServerOptions options;
  ModelFacts model;
  TextCodec text;
  TaskQueue<CoreTask> engine;
  TaskQueue<std::function<void()>> replies;
  Board board;
};

// Runs on the engine thread; its Error is answered 500.
using Control = std::function<void(EngineCore&, const http::Responder&)>;
// Runs on the HTTP thread: checks the request (Error{refused}: 400) and returns what the engine thread has to do.
using Parse = std::function<Control(const http::ServerRequest&)>;
void control_route(http::Server& server, Shared& shared, const std::string& method, const std::string& path,
                   Parse parse);

http::Response json_reply(const Json& body);
// The verdict's error, or `success` with status 200.
void answer(const http::Responder& responder, const Verdict& verdict, const Json& success);
void answer_empty(const http::Responder& responder, const Verdict& verdict);

// The request's body as an object; an empty body is {} where `required` is false.
Json body_object(const http::ServerRequest& request, bool required);
// Refuses query keys that are not listed.
void check_query(const http::ServerRequest& request, const std::vector<std::string>& known);
// "true" or "false".
bool query_flag(const http::ServerRequest& request, const std::string& key, bool otherwise);

void add_information_routes(http::Server& server, Shared& shared);  // health, version, models, load, metrics, tokenize
void add_generation_routes(http::Server& server, Shared& shared);   // completions, generate, abort_requests
void add_pause_routes(http::Server& server, Shared& shared);        // pause, resume, sleep, wake_up, reset_prefix_cache
void add_weight_routes(http::Server& server, Shared& shared);       // the update session, versions, checksums, reload

}  // namespace vime::engine
