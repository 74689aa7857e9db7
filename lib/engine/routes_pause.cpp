// /pause, /resume, /is_paused, /sleep, /wake_up, /is_sleeping, /reset_prefix_cache.
#include "engine/routes.hpp"

namespace vime::engine {
namespace {

PauseMode parse_mode(const http::ServerRequest& request) {
  // The older name of mode=wait.
  const bool wait = query_flag(request, "wait_for_inflight_requests", false);
  const std::string mode = request.query_value("mode", wait ? "wait" : "abort");
  if (mode == "abort") return PauseMode::abort;
  if (mode == "wait") return PauseMode::wait;
  if (mode == "keep") return PauseMode::keep;
  throw Error(ErrorKind::refused, "invalid pause mode \"" + mode + "\": expected abort, wait or keep");
}

// The pause routes answer errors as {"error": "<text>"}.
http::Response flat_error(int status, const std::string& message) {
  http::Response response = json_reply({{"error", message}});
  response.status = status;
  return response;
}

void answer_flat(const http::Responder& responder, const Verdict& verdict, const Json& success) {
  responder.respond(verdict.ok() ? json_reply(success) : flat_error(verdict.status, verdict.error));
}

Control parse_pause(const http::ServerRequest& request) {
  try {
    check_query(request, {"mode", "clear_cache", "wait_for_inflight_requests"});
    const PauseMode mode = parse_mode(request);
    const bool clear_cache = query_flag(request, "clear_cache", true);
    return [mode, clear_cache](EngineCore& core, const http::Responder& responder) {
      core.pause(mode, clear_cache, [responder](const Verdict& verdict) {
        answer_flat(responder, verdict, {{"status", "paused"}});
      });
    };
  } catch (const Error& error) {
    const std::string message = error.what();
    return [message](EngineCore&, const http::Responder& responder) { responder.respond(flat_error(400, message)); };
  }
}

Control parse_sleep(const http::ServerRequest& request) {
  check_query(request, {"level", "mode"});
  const std::string level = request.query_value("level", "1");
  if (level != "0" && level != "1" && level != "2") {
    throw Error(ErrorKind::refused, "/sleep: query key \"level\": expected 0, 1 or 2, found \"" + level + "\"");
  }
  const PauseMode mode = parse_mode(request);
  return [level = level[0] - '0', mode](EngineCore& core, const http::Responder& responder) {
    core.sleep(level, mode, [responder](const Verdict& verdict) { answer_empty(responder, verdict); });
  };
}

Control parse_wake(const http::ServerRequest& request) {
  check_query(request, {"tags"});
  EngineCore::Parts parts;
  const auto [first, last] = request.query.equal_range("tags");
  if (first == last) parts = {true, true, true};
  for (auto tag = first; tag != last; ++tag) {
    if (tag->second == "weights") {
      parts.weights = true;
    } else if (tag->second == "kv_cache") {
      parts.kv_cache = true;
    } else if (tag->second == "scheduling") {
      parts.scheduling = true;
    } else {
      throw Error(ErrorKind::refused,
                  "/wake_up: unknown tag \"" + tag->second + "\": expected weights, kv_cache or scheduling");
    }
  }
  return [parts](EngineCore& core, const http::Responder& responder) { answer_empty(responder, core.wake(parts)); };
}

}  // namespace

void add_pause_routes(http::Server& server, Shared& shared) {
  control_route(server, shared, "POST", "/pause", parse_pause);
  control_route(server, shared, "POST", "/resume", [](const http::ServerRequest&) -> Control {
    return [](EngineCore& core, const http::Responder& responder) {
      answer_flat(responder, core.resume(), {{"status", "resumed"}});
    };
  });
  control_route(server, shared, "GET", "/is_paused", [](const http::ServerRequest&) -> Control {
    return [](EngineCore& core, const http::Responder& responder) {
      answer(responder, {}, {{"is_paused", core.is_paused()}});
    };
  });
  control_route(server, shared, "POST", "/sleep", parse_sleep);
  control_route(server, shared, "POST", "/wake_up", parse_wake);
  control_route(server, shared, "GET", "/is_sleeping", [](const http::ServerRequest&) -> Control {
    return [](EngineCore& core, const http::Responder& responder) {
      answer(responder, {}, {{"is_sleeping", core.is_sleeping()}});
    };
  });
  // There is no prefix cache: only running sequences hold keys and values, and nothing is reused between them.
  control_route(server, shared, "POST", "/reset_prefix_cache", [](const http::ServerRequest& request) -> Control {
    check_query(request, {"reset_running_requests", "reset_external"});
    query_flag(request, "reset_external", false);
    return [running = query_flag(request, "reset_running_requests", false)](EngineCore& core,
                                                                            const http::Responder& responder) {
      if (running) core.preempt_running();
      answer_empty(responder, {});
    };
  });
}

}  // namespace vime::engine
