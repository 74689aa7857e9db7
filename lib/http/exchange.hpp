// One request on its way to its answer, shared by the server's coroutine and the responders. It outlives either side:
// it holds nothing of the server but a function that runs work on the server's thread and does nothing once the server
// is gone.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "http/server.hpp"

namespace vime::http {

using Post = std::function<void(std::function<void()>)>;

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  explicit Exchange(Post post) : post_(std::move(post)) {}

  // Any thread.
  void answer(Response response);
  void on_disconnect(std::function<void()> gone);
  bool is_settled() const;  // answered, or nobody is left to hear the answer

  // The server's thread only.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }  // called when answer() settled it
  std::optional<Response> take_answer();
  void client_gone();
  void abandon();  // the connection is closed by the server

 private:
  enum class Phase { open, answered, gone, abandoned };

  // Leaves `open`; false when that has happened before. Gives the disconnect function away, to be called or destroyed
  // without the lock: it may own the last responder of this exchange.
  bool settle(Phase phase, std::optional<Response> response, std::function<void()>& gone);

  const Post post_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::open;
  std::optional<Response> response_;
  std::function<void()> gone_;
  std::function<void()> wake_;
};

struct Responder::State {
  explicit State(std::shared_ptr<Exchange> of) : exchange(std::move(of)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();  // answers 500 when nothing else has

  std::shared_ptr<Exchange> exchange;
};

}  // namespace vime::http
