#include "fleet/fleet.hpp"

#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace vime::fleet {

Fleet::Fleet(http::Client& client, Supervisor& supervisor, std::vector<weights::EngineAddress> engines,
             FleetOptions options)
    : client_(client), supervisor_(supervisor), options_(std::move(options)) {
  for (weights::EngineAddress& address : engines) {
    engines_.push_back(std::make_unique<weights::EngineClient>(client, std::move(address), options_.transfer_timeout));
  }
}

Json completion_body(const GenerateJob& job, const std::string& model) {
  return {{"model", model},
          {"prompt", job.prompt},
          {"max_tokens", job.sampling.max_tokens},
          {"temperature", job.sampling.temperature},
          {"top_p", job.sampling.top_p},
          {"top_k", job.sampling.top_k},
          {"min_p", 0.0},
          {"n", 1},
          {"seed", job.seed},
          {"logprobs", 0},
          {"return_token_ids", true},
          {"stop_token_ids", job.sampling.stop_token_ids},
          {"ignore_eos", false},
          {"skip_special_tokens", false}};
}

Generation parse_completion(const std::string& body, const std::string& what) {
  const Json reply = parse_json(body, what);
  const Json& choices = json_member(reply, "choices", what);
  if (!choices.is_array() || choices.size() != 1) {
    throw Error(ErrorKind::process_failed, what + ": expected one choice, found " + choices.dump().substr(0, 80));
  }
  const Json& choice = choices[0];
  Generation generation;
  generation.tokens = json_ints(choice, "token_ids", what);
  const Json& logprobs = json_member(json_member(choice, "logprobs", what), "token_logprobs", what);
  for (const Json& value : logprobs) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      throw Error(ErrorKind::process_failed, what + ": log-prob " + std::to_string(generation.logprobs.size()) +
                                                 " is " + value.dump() + ", expected a finite number");
    }
    generation.logprobs.push_back(value.get<double>());
  }
  if (generation.logprobs.size() != generation.tokens.size()) {
    throw Error(ErrorKind::process_failed, what + ": " + std::to_string(generation.tokens.size()) + " tokens but " +
                                               std::to_string(generation.logprobs.size()) + " log-probs");
  }
  generation.finish_reason = json_string(choice, "finish_reason", what);
  const Json& spans = json_member(choice, "weight_versions", what);
  if (!spans.empty()) {
    generation.version_first = weights::parse_version(json_string(spans.front(), "version", what), what);
    generation.version_last = weights::parse_version(json_string(spans.back(), "version", what), what);
  }
  return generation;
}

std::vector<Generation> Fleet::generate(const std::vector<GenerateJob>& jobs,
                                        const std::function<void(size_t, const Generation&)>& finished,
                                        const std::function<void()>& meanwhile) {
  // Shared with the client's thread, which may still deliver after this function has thrown.
  struct Arrivals {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<size_t, http::Outcome>> queue;
  };
  const auto arrivals = std::make_shared<Arrivals>();
  const auto engine_of = [this](size_t job) -> weights::EngineClient& { return *engines_[job % engines_.size()]; };
  const auto name_of = [&](size_t job) { return jobs[job].name + " on " + engine_of(job).address().name(); };
  for (size_t i = 0; i < jobs.size(); ++i) {
    http::Request request = engine_of(i).request(
        "POST", "/v1/completions", completion_body(jobs[i], options_.served_model), options_.request_timeout);
    request.what = name_of(i);
    client_.send(std::move(request), [arrivals, i](http::Outcome outcome) {
      const std::lock_guard lock(arrivals->mutex);
      arrivals->queue.emplace_back(i, std::move(outcome));
      arrivals->changed.notify_one();
    });
  }
  std::vector<Generation> results(jobs.size());
  size_t arrived = 0;
  while (arrived < jobs.size()) {
    std::deque<std::pair<size_t, http::Outcome>> batch;
    {
      std::unique_lock lock(arrivals->mutex);
      arrivals->changed.wait_for(lock, milliseconds(10), [&] { return !arrivals->queue.empty(); });
      batch.swap(arrivals->queue);
    }
    supervisor_.check();
    if (meanwhile) meanwhile();
    for (auto& [job, outcome] : batch) {
      if (!outcome.answered) supervisor_.explain(Error(ErrorKind::process_failed, outcome.error));
      if (outcome.reply.status != 200) {
        supervisor_.explain(Error(ErrorKind::process_failed, name_of(job) + ": " + http::status_text(outcome.reply)));
      }
      results[job] = parse_completion(outcome.reply.body, name_of(job));
      results[job].engine = engine_of(job).address().name();
      finished(job, results[job]);
      ++arrived;
    }
  }
  return results;
}

std::vector<std::vector<double>> Fleet::prompt_logprobs(int engine, const std::vector<std::vector<int64_t>>&) {
  throw Error(ErrorKind::process_failed, engines_.at(static_cast<size_t>(engine))->address().name() +
                                             " cannot be asked for the log-probs of given tokens");
}

void Fleet::pause_all() {
  for (const auto& engine : engines_) engine->pause("abort", true);
}

void Fleet::resume_all() {
  for (const auto& engine : engines_) engine->resume();
}

std::vector<weights::EngineVersion> Fleet::versions() {
  std::vector<weights::EngineVersion> versions;
  for (const auto& engine : engines_) versions.push_back(engine->weight_version());
  return versions;
}

}  // namespace vime::fleet
