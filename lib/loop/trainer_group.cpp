#include "loop/trainer_group.hpp"

#include <future>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::loop {
namespace {

// The user's Ctrl-C is heeded again when this goes, however that comes about.
class InterruptsLater {
 public:
  explicit InterruptsLater(fleet::Supervisor& supervisor)
      : supervisor_(supervisor), before_(supervisor.heed_interrupts(false)) {}
  ~InterruptsLater() { supervisor_.heed_interrupts(before_); }
  InterruptsLater(const InterruptsLater&) = delete;
  InterruptsLater& operator=(const InterruptsLater&) = delete;

 private:
  fleet::Supervisor& supervisor_;
  bool before_;
};

// Why a rank did not do what it was told. depth: 0 for a cause of its own, more for what other ranks' failures bring
// about.
struct RankFailure {
  Error error;
  int depth = 0;
};

RankFailure failure_of(const http::Outcome& outcome, const std::string& what) {
  if (!outcome.answered) {
    return {Error(ErrorKind::process_failed, outcome.error,
                  outcome.timed_out ? "trainer.timeout is how long a command may take" : ""),
            2};
  }
  const Json body = try_parse_json(outcome.reply.body);
  const Json error = body.is_object() ? body.value("error", Json()) : Json();
  if (!error.is_object() || !error.contains("kind")) {
    return {Error(ErrorKind::process_failed, what + ": " + http::status_text(outcome.reply)), 0};
  }
  const bool exhausted = error.value("kind", "") == kind_name(ErrorKind::exhausted);
  return {Error(exhausted ? ErrorKind::exhausted : ErrorKind::process_failed, what + ": " + error.value("message", ""),
                error.value("hint", "")),
          error.value("bystander", false) ? 1 : 0};
}

}  // namespace

TrainerGroup::TrainerGroup(http::Client& client, fleet::Supervisor& supervisor, std::vector<std::string> urls,
                           std::string token, std::chrono::milliseconds timeout)
    : client_(client), supervisor_(supervisor), urls_(std::move(urls)), token_(std::move(token)), timeout_(timeout) {}

std::vector<Json> TrainerGroup::call_all(const std::string& path, const Json& body) {
  std::vector<int> ranks(urls_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return call_ranks(ranks, path, body);
}

Json TrainerGroup::call(int rank, const std::string& path, const Json& body) {
  return call_ranks({rank}, path, body).front();
}

std::vector<Json> TrainerGroup::call_ranks(const std::vector<int>& ranks, const std::string& path, const Json& body) {
  std::vector<std::future<http::Outcome>> replies;
  for (const int rank : ranks) {
    http::Request request;
    request.method = "POST";
    request.url = urls_[static_cast<size_t>(rank)] + path;
    request.body = body.dump();
    request.headers = {{"x-vime-token", token_}};
    request.what = "trainer rank " + std::to_string(rank) + ": " + path;
    request.timeout = timeout_;
    replies.push_back(client_.send(std::move(request)));
  }
  const auto unanswered = [&] {
    std::vector<std::string> names;
    for (size_t i = 0; i < replies.size(); ++i) {
      if (replies[i].wait_for(std::chrono::seconds(0)) != std::future_status::ready)
        names.push_back(std::to_string(ranks[i]));
    }
    return names;
  };
  {
    const InterruptsLater later(supervisor_);
    // The client's own deadline ends every request, so this one only guards against a client that forgot.
    supervisor_.wait_until([&] { return unanswered().empty(); }, Deadline(timeout_ + milliseconds(5000)),
                           "trainer ranks " + join(unanswered(), ", ") + ": " + path);
  }

  std::vector<Json> answers;
  std::optional<RankFailure> failure;
  for (size_t i = 0; i < replies.size(); ++i) {
    const std::string what = "trainer rank " + std::to_string(ranks[i]) + ": " + path;
    const http::Outcome outcome = replies[i].get();
    if (outcome.answered && outcome.reply.status == 200) {
      answers.push_back(parse_json(outcome.reply.body, what));
      continue;
    }
    RankFailure found = failure_of(outcome, what);
    if (!failure || found.depth < failure->depth) failure.emplace(std::move(found));
  }
  if (failure) supervisor_.explain(failure->error);
  return answers;
}

}  // namespace vime::loop
