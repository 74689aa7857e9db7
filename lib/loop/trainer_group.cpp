#include "loop/trainer_group.hpp"

#include <future>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::loop {

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
  const bool heeded = supervisor_.heed_interrupts(false);
  // The client's own deadline ends every request, so this one only guards against a client that forgot.
  supervisor_.wait_until([&] { return unanswered().empty(); }, Deadline(timeout_ + milliseconds(5000)),
                         "trainer ranks " + join(unanswered(), ", ") + ": " + path);
  supervisor_.heed_interrupts(heeded);

  std::vector<Json> answers;
  for (size_t i = 0; i < replies.size(); ++i) {
    const std::string what = "trainer rank " + std::to_string(ranks[i]) + ": " + path;
    const http::Outcome outcome = replies[i].get();
    if (!outcome.answered) {
      supervisor_.explain(Error(ErrorKind::process_failed, outcome.error,
                                outcome.timed_out ? "trainer.timeout is how long a command may take" : ""));
    }
    if (outcome.reply.status != 200) {
      supervisor_.explain(Error(ErrorKind::process_failed, what + ": " + http::status_text(outcome.reply)));
    }
    answers.push_back(parse_json(outcome.reply.body, what));
  }
  return answers;
}

}  // namespace vime::loop
