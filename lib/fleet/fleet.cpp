#include "fleet/fleet.hpp"

#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "fleet/routing.hpp"

namespace vime::fleet {
namespace {

Json only_choice(const std::string& body, const std::string& what) {
  const Json reply = parse_json(body, what);
  const Json& choices = json_member(reply, "choices", what);
  if (!choices.is_array() || choices.size() != 1) {
    throw Error(ErrorKind::process_failed, what + ": expected one choice, found " + choices.dump().substr(0, 80));
  }
  return choices[0];
}

double finite(const Json& value, const std::string& what) {
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    throw Error(ErrorKind::process_failed, what + " is " + value.dump() + ", expected a finite number");
  return value.get<double>();
}

}  // namespace

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

Generation parse_completion(const std::string& body, const std::string& what, bool tells_spans) {
  const Json choice = only_choice(body, what);
  Generation generation;
  generation.tokens = json_ints(choice, "token_ids", what);
  const Json& logprobs = json_member(json_member(choice, "logprobs", what), "token_logprobs", what);
  for (const Json& value : logprobs) {
    generation.logprobs.push_back(finite(value, what + ": log-prob " + std::to_string(generation.logprobs.size())));
  }
  if (generation.logprobs.size() != generation.tokens.size()) {
    throw Error(ErrorKind::process_failed, what + ": " + std::to_string(generation.tokens.size()) + " tokens but " +
                                               std::to_string(generation.logprobs.size()) + " log-probs");
  }
  generation.finish_reason = json_string(choice, "finish_reason", what);
  if (!tells_spans) return generation;
  const Json& spans = json_member(choice, "weight_versions", what);
  if (!spans.empty()) {
    generation.version_first = weights::parse_version(json_string(spans.front(), "version", what), what);
    generation.version_last = weights::parse_version(json_string(spans.back(), "version", what), what);
  }
  return generation;
}

Json prompt_logprobs_body(const std::vector<int64_t>& sequence, const std::string& model) {
  GenerateJob job;
  job.prompt = sequence;
  job.sampling.temperature = 0;
  job.sampling.max_tokens = 1;  // the least that engines accept
  Json body = completion_body(job, model);
  body["prompt_logprobs"] = 0;
  return body;
}

std::vector<double> parse_prompt_logprobs(const std::string& body, const std::vector<int64_t>& sequence,
                                          const std::string& what) {
  const Json choice = only_choice(body, what);
  const Json& list = json_member(choice, "prompt_logprobs", what);
  if (!list.is_array() || list.size() != sequence.size()) {
    throw Error(ErrorKind::process_failed, what + ": expected prompt_logprobs of " + std::to_string(sequence.size()) +
                                               " tokens, found " +
                                               (list.is_array() ? std::to_string(list.size()) : list.dump()));
  }
  std::vector<double> logprobs;
  for (size_t i = 1; i < sequence.size(); ++i) {
    const std::string where = what + ": prompt log-prob " + std::to_string(i);
    const Json& own = json_member(list[i], std::to_string(sequence[i]), where);
    logprobs.push_back(finite(json_member(own, "logprob", where), where));
  }
  return logprobs;
}

void Fleet::call_all(std::vector<http::Request> requests, const std::function<std::optional<size_t>()>& next,
                     const std::function<void(size_t, const http::Reply&)>& take,
                     const std::function<void()>& meanwhile) {
  // Shared with the client's thread, which may still deliver after this function has thrown.
  struct Arrivals {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<size_t, http::Outcome>> queue;
  };
  const auto arrivals = std::make_shared<Arrivals>();
  std::vector<std::string> names;
  for (const http::Request& request : requests) names.push_back(request.what);
  const auto send_next = [&] {
    while (const std::optional<size_t> index = next()) {
      client_.send(std::move(requests[*index]), [arrivals, at = *index](http::Outcome outcome) {
        const std::lock_guard lock(arrivals->mutex);
        arrivals->queue.emplace_back(at, std::move(outcome));
        arrivals->changed.notify_one();
      });
    }
  };
  send_next();
  size_t arrived = 0;
  while (arrived < names.size()) {
    std::deque<std::pair<size_t, http::Outcome>> batch;
    {
      std::unique_lock lock(arrivals->mutex);
      arrivals->changed.wait_for(lock, milliseconds(10), [&] { return !arrivals->queue.empty(); });
      batch.swap(arrivals->queue);
    }
    supervisor_.check();
    if (meanwhile) meanwhile();
    for (auto& [index, outcome] : batch) {
      if (!outcome.answered) supervisor_.explain(Error(ErrorKind::process_failed, outcome.error));
      if (outcome.reply.status != 200) {
        supervisor_.explain(Error(ErrorKind::process_failed, names[index] + ": " + http::status_text(outcome.reply)));
      }
      take(index, outcome.reply);
      ++arrived;
    }
    if (!batch.empty()) send_next();
  }
}

std::vector<Generation> Fleet::generate(const std::vector<GenerateJob>& jobs,
                                        const std::function<void(size_t, const Generation&)>& finished,
                                        const std::function<void()>& meanwhile) {
  check_tokens(jobs);
  std::vector<int64_t> sessions;
  for (const GenerateJob& job : jobs) sessions.push_back(job.session);
  Routing routing(sessions, engines_.size(), options_.concurrency);
  const auto engine_of = [&](size_t job) -> weights::EngineClient& { return *engines_[routing.engine_of(job)]; };
  const auto name_of = [&](size_t job) { return jobs[job].name + " on " + engine_of(job).address().name(); };
  std::vector<http::Request> requests;
  for (size_t i = 0; i < jobs.size(); ++i) {
    requests.push_back(engine_of(i).request(
        "POST", "/v1/completions", completion_body(jobs[i], engine_of(i).address().model), options_.request_timeout));
    requests.back().what = name_of(i);
  }
  std::vector<Generation> results(jobs.size());
  std::vector<int64_t> sent_on(jobs.size());  // the engine's version then
  const auto take = [&](size_t job, const http::Reply& reply) {
    const weights::EngineClient& engine = engine_of(job);
    const bool tells_spans = engine.protocol().tells_spans();
    results[job] = parse_completion(reply.body, name_of(job), tells_spans);
    if (!tells_spans) {
      results[job].version_first = sent_on[job];
      results[job].version_last = engine.recorded_version();
    }
    results[job].engine = engine.address().name();
    routing.done(job);
    finished(job, results[job]);
  };
  const auto next = [&]() -> std::optional<size_t> {
    const std::optional<size_t> job = routing.next();
    if (job) sent_on[*job] = engine_of(*job).recorded_version();
    return job;
  };
  call_all(std::move(requests), next, take, meanwhile);
  return results;
}

std::vector<std::vector<double>> Fleet::prompt_logprobs(int engine,
                                                        const std::vector<std::vector<int64_t>>& sequences) {
  const weights::EngineClient& asked = this->engine(engine);
  const auto name_of = [&](size_t i) {
    return "log-probs of sequence " + std::to_string(i) + " on " + asked.address().name();
  };
  std::vector<http::Request> requests;
  for (size_t i = 0; i < sequences.size(); ++i) {
    requests.push_back(asked.request("POST", "/v1/completions",
                                     prompt_logprobs_body(sequences[i], asked.address().model),
                                     options_.request_timeout));
    requests.back().what = name_of(i);
  }
  std::vector<std::vector<double>> results(sequences.size());
  const auto take = [&](size_t i, const http::Reply& reply) {
    results[i] = parse_prompt_logprobs(reply.body, sequences[i], name_of(i));
  };
  size_t sent = 0;
  const size_t count = requests.size();
  call_all(std::move(requests), [&]() { return sent < count ? std::optional(sent++) : std::nullopt; }, take, {});
  return results;
}

void Fleet::check_tokens(const std::vector<GenerateJob>& jobs) const {
  if (options_.vocab_size <= 0) return;
  for (const GenerateJob& job : jobs) {
    for (const int64_t token : job.prompt) {
      if (token >= 0 && token < options_.vocab_size) continue;
      throw Error(ErrorKind::refused,
                  job.name + ": its prompt has token " + std::to_string(token) + ", but the model's vocabulary has " +
                      std::to_string(options_.vocab_size),
                  "the tokenizer is not this model's");
    }
  }
}

void Fleet::pause_all() {
  for (const auto& engine : engines_) engine->pause("abort", true);
}

void Fleet::resume_all() {
  for (const auto& engine : engines_) engine->resume();
}

void Fleet::sleep_all(int level) {
  for (const auto& engine : engines_) engine->sleep(level);
}

void Fleet::wake_all(const std::vector<std::string>& tags) {
  for (const auto& engine : engines_) engine->wake_up(tags);
}

std::vector<weights::EngineVersion> Fleet::versions() {
  std::vector<weights::EngineVersion> versions;
  for (const auto& engine : engines_) versions.push_back(engine->weight_version());
  return versions;
}

}  // namespace vime::fleet
