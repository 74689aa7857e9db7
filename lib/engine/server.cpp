#include "engine/server.hpp"

#include <thread>
#include <utility>

#include "base/log.hpp"
#include "engine/routes.hpp"

namespace vime::engine {

struct EngineServer::State {
  State(ServerOptions given, Executor& executor, TextCodec codec)
      : shared{std::move(given), {}, std::move(codec), {}, {}, {}},
        core(executor,
             {shared.options.eos_ids, shared.options.weights_loaded, shared.options.model_dir, shared.options.seed}),
        http({shared.options.address, shared.options.port, 256u << 20, shared.options.token}) {
    shared.model = {shared.options.model_name, executor.max_model_len(), shared.options.vocab_size};
    add_information_routes(http, shared);
    add_generation_routes(http, shared);
    add_pause_routes(http, shared);
    add_weight_routes(http, shared);
  }

  void run_engine();
  void run_replies();

  Shared shared;
  EngineCore core;
  http::Server http;
  std::thread engine_thread;
  std::thread reply_thread;
};

void EngineServer::State::run_engine() {
  bool reported = false;
  bool stepped = false;
  while (!shared.engine.closed()) {
    for (CoreTask& task : shared.engine.take(!stepped)) task(core);
    // Published before the step too, which may take long.
    shared.board.publish(core.counts(), core.failed());
    stepped = core.step();
    shared.board.publish(core.counts(), core.failed());
    if (core.failed() && !std::exchange(reported, true) && shared.options.on_failure)
      shared.options.on_failure(core.failure());
  }
  core.shut_down();
}

void EngineServer::State::run_replies() {
  while (true) {
    const auto tasks = shared.replies.take(true);
    if (tasks.empty()) return;
    for (const auto& task : tasks) {
      try {
        task();
      } catch (const std::exception& error) {
        // The responder goes with the task, and the client gets 500.
        log::error("engine", std::string("an answer could not be written: ") + error.what());
      }
    }
  }
}

EngineServer::EngineServer(ServerOptions options, Executor& executor, TextCodec text)
    : state_(std::make_unique<State>(std::move(options), executor, std::move(text))) {}

EngineServer::~EngineServer() {
  stop();
}

void EngineServer::start() {
  state_->reply_thread = std::thread([state = state_.get()] { state->run_replies(); });
  state_->engine_thread = std::thread([state = state_.get()] { state->run_engine(); });
  state_->http.start();
}

uint16_t EngineServer::port() const {
  return state_->http.port();
}

void EngineServer::stop() {
  // Engine first, so that what is in flight is answered while the connections still stand.
  state_->shared.engine.close();
  if (state_->engine_thread.joinable()) state_->engine_thread.join();
  state_->shared.engine.take(false);  // what came too late is dropped here: its clients get 500
  state_->shared.replies.close();
  if (state_->reply_thread.joinable()) state_->reply_thread.join();
  state_->http.stop();
}

}  // namespace vime::engine
