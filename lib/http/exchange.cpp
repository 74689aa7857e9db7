#include "http/exchange.hpp"

#include <exception>
#include <utility>

#include "base/log.hpp"

namespace vime::http {

bool Exchange::settle(Phase phase, std::optional<Response> response, std::function<void()>& gone) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::open) return false;
  phase_ = phase;
  response_ = std::move(response);
  gone.swap(gone_);
  return true;
}

void Exchange::answer(Response response) {
  std::function<void()> unused;
  if (!settle(Phase::answered, std::move(response), unused)) return;
  post_([self = shared_from_this()] {
    if (self->wake_) self->wake_();
  });
}

void Exchange::on_disconnect(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::open) {
      gone.swap(gone_);
      return;
    }
    if (phase_ != Phase::gone) return;
  }
  post_(std::move(gone));
}

bool Exchange::is_settled() const {
  const std::lock_guard lock(mutex_);
  return phase_ != Phase::open;
}

std::optional<Response> Exchange::take_answer() {
  const std::lock_guard lock(mutex_);
  return std::exchange(response_, std::nullopt);
}

void Exchange::client_gone() {
  std::function<void()> gone;
  if (settle(Phase::gone, std::nullopt, gone) && gone) post_(std::move(gone));
}

void Exchange::abandon() {
  std::function<void()> unused;
  settle(Phase::abandoned, std::nullopt, unused);
}

Responder::State::~State() {
  if (exchange->is_settled()) return;
  try {
    exchange->answer(error_response(500, "the handler dropped the request without an answer"));
  } catch (const std::exception& e) {
    log::error("http", std::string("answer a dropped request: ") + e.what());
  }
}

void Responder::respond(Response response) const {
  state_->exchange->answer(std::move(response));
}

void Responder::on_disconnect(std::function<void()> gone) const {
  state_->exchange->on_disconnect(std::move(gone));
}

}  // namespace vime::http
