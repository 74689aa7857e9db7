#include "fleet/fleet.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "fleet/routing.hpp"

namespace vime::fleet {
namespace {

void append_ids(const std::vector<int64_t>& ids, std::string& text) {
  char digits[24];
  text += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += ',';
    text.append(digits, std::to_chars(digits, digits + sizeof digits, ids[i]).ptr);
  }
  text += ']';
}

// Written down directly: of what a request costs the driver, a document of its fields would be the larger part.
std::string body_text(const GenerateJob& job, const std::string& model, bool prompt_logprobs) {
  const SamplingParams& sampling = job.sampling;
  std::string text = R"({"model":)" + Json(model).dump() + R"(,"prompt":)";
  text.reserve(text.size() + 6 * job.prompt.size() + 320);
  append_ids(job.prompt, text);
  text += R"(,"max_tokens":)" + std::to_string(sampling.max_tokens);
  text += R"(,"temperature":)" + Json(sampling.temperature).dump() + R"(,"top_p":)" + Json(sampling.top_p).dump();
  text += R"(,"top_k":)" + std::to_string(sampling.top_k) + R"(,"min_p":0.0,"n":1,"seed":)" + std::to_string(job.seed);
  text += R"(,"repetition_penalty":1.0,"presence_penalty":0.0,"frequency_penalty":0.0)";
  text += R"(,"logprobs":0,"return_token_ids":true,"stop_token_ids":)";
  append_ids(sampling.stop_token_ids, text);
  text += R"(,"ignore_eos":false,"skip_special_tokens":false)";
  if (prompt_logprobs) text += R"(,"prompt_logprobs":0)";
  return text + "}";
}

Json only_choice(const std::string& body, const std::string& what) {
  Json reply = parse_json(body, what);
  json_member(reply, "choices", what);
  Json& choices = reply["choices"];
  if (!choices.is_array() || choices.size() != 1) {
    throw Error(ErrorKind::process_failed, what + ": expected one choice, found " + choices.dump().substr(0, 80));
  }
  return std::move(choices[0]);
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

std::string completion_body(const GenerateJob& job, const std::string& model) {
  return body_text(job, model, false);
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

std::string prompt_logprobs_body(const std::vector<int64_t>& sequence, const std::string& model) {
  GenerateJob job;
  job.prompt = sequence;
  job.sampling.temperature = 0;
  job.sampling.max_tokens = 1;  // the least that engines accept
  return body_text(job, model, true);
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

void Fleet::call_all(const Calls& calls, const std::function<void()>& meanwhile) {
  // Shared with the client's thread, which may still deliver after this function has thrown.
  struct Arrivals {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<size_t, http::Outcome>> queue;
  };
  const auto arrivals = std::make_shared<Arrivals>();
  const auto send_next = [&] {
    while (const std::optional<size_t> index = calls.next()) {
      client_.send(calls.request(*index), [arrivals, at = *index](http::Outcome outcome) {
        const std::lock_guard lock(arrivals->mutex);
        arrivals->queue.emplace_back(at, std::move(outcome));
        arrivals->changed.notify_one();
      });
    }
  };
  send_next();
  size_t arrived = 0;
  while (arrived < calls.count) {
    std::deque<std::pair<size_t, http::Outcome>> batch;
    {
      std::unique_lock lock(arrivals->mutex);
      arrivals->changed.wait_for(lock, milliseconds(10), [&] { return !arrivals->queue.empty(); });
      batch.swap(arrivals->queue);
    }
    supervisor_.check();
    if (meanwhile) meanwhile();
    for (auto& [index, outcome] : batch) {
      if (!outcome.error.empty()) supervisor_.explain(Error(ErrorKind::process_failed, outcome.error));
      calls.take(index, outcome.reply);
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
  std::vector<Generation> results(jobs.size());
  Calls calls;
  calls.count = jobs.size();
  calls.next = [&] { return routing.next(); };
  calls.request = [&](size_t job) {
    const weights::EngineClient& engine = engine_of(job);
    results[job].version_first = engine.recorded_version();
    http::Request request = engine.text_request(
        "POST", "/v1/completions", completion_body(jobs[job], engine.address().model), options_.request_timeout);
    request.what = name_of(job);
    return request;
  };
  calls.take = [&](size_t job, const http::Reply& reply) {
    const weights::EngineClient& engine = engine_of(job);
    const bool tells_spans = engine.protocol().tells_spans();
    const int64_t sent_on = results[job].version_first;
    results[job] = parse_completion(reply.body, name_of(job), tells_spans);
    if (!tells_spans) {
      results[job].version_first = sent_on;
      results[job].version_last = engine.recorded_version();
    }
    results[job].engine = engine.address().name();
    routing.done(job);
    finished(job, results[job]);
  };
  call_all(calls, meanwhile);
  return results;
}

std::vector<std::vector<double>> Fleet::prompt_logprobs(int engine,
                                                        const std::vector<std::vector<int64_t>>& sequences) {
  const weights::EngineClient& asked = this->engine(engine);
  const auto name_of = [&](size_t i) {
    return "log-probs of sequence " + std::to_string(i) + " on " + asked.address().name();
  };
  std::vector<std::vector<double>> results(sequences.size());
  Calls calls;
  calls.count = sequences.size();
  calls.next = [&, sent = size_t{0}]() mutable {
    return sent < sequences.size() ? std::optional<size_t>(sent++) : std::nullopt;
  };
  calls.request = [&](size_t i) {
    http::Request request = asked.text_request(
        "POST", "/v1/completions", prompt_logprobs_body(sequences[i], asked.address().model), options_.request_timeout);
    request.what = name_of(i);
    return request;
  };
  calls.take = [&](size_t i, const http::Reply& reply) {
    results[i] = parse_prompt_logprobs(reply.body, sequences[i], name_of(i));
  };
  call_all(calls, {});
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

// All at once: one that is slow does not keep the others waiting.
Fleet::Replies Fleet::send_all(const Send& send) {
  Replies replies;
  for (const auto& engine : engines_) replies.push_back(send(*engine));
  return replies;
}

// What failed is told of all that failed.
void Fleet::check_all(Replies replies) {
  std::vector<std::string> problems;
  for (size_t i = 0; i < replies.size(); ++i) {
    try {
      engines_[i]->check(replies[i].get());
    } catch (const Error& error) {
      problems.push_back(error.message());
    }
  }
  if (!problems.empty()) explain(Error(ErrorKind::process_failed, join(problems, "\n")));
}

void Fleet::tell_all(const Send& send) {
  check_all(std::exchange(pauses_, {}));  // no resume, sleep or wake overtakes a pause
  check_all(send_all(send));
}

// Engines that serve this thread alone have no request in flight here, so that one which has paused is idle, with its
// caches cleared: its answer to /pause, which lingers for the sake of requests, need not be waited for. An engine takes
// calls in their order, so that a push comes after the pause in any case. One that sleeps would always say that it has
// paused.
void Fleet::pause_all() {
  check_all(std::exchange(pauses_, {}));
  pauses_ = send_all([](weights::EngineClient& engine) { return engine.send_pause("abort", true); });
  const bool linger = std::all_of(engines_.begin(), engines_.end(),
                                  [](const auto& engine) { return engine->protocol().lingers_over_pause(); });
  if (linger && !options_.shared && !asleep_) {
    try {
      wait_until_paused();
    } catch (const Error&) {
      pauses_.clear();  // whoever tidies up after this error does not wait for them
      throw;
    }
  } else {
    check_all(std::exchange(pauses_, {}));
  }
}

// Until every engine says that it has paused, or one has answered /pause, which may be a refusal.
void Fleet::wait_until_paused() {
  constexpr milliseconds kBetweenLooks{2};
  std::vector<size_t> left(engines_.size());
  std::iota(left.begin(), left.end(), size_t{0});
  while (!left.empty()) {
    std::this_thread::sleep_for(kBetweenLooks);
    supervisor_.check();
    const bool answered = std::any_of(left.begin(), left.end(), [&](size_t i) {
      return pauses_[i].wait_for(milliseconds(0)) == std::future_status::ready;
    });
    if (answered) return check_all(std::exchange(pauses_, {}));
    Replies replies;
    for (const size_t i : left) replies.push_back(engines_[i]->ask_paused());
    std::vector<size_t> not_yet;
    std::vector<std::string> problems;
    for (size_t at = 0; at < left.size(); ++at) {
      try {
        if (!engines_[left[at]]->says_paused(replies[at].get())) not_yet.push_back(left[at]);
      } catch (const Error& error) {
        problems.push_back(error.message());
      }
    }
    if (!problems.empty()) explain(Error(ErrorKind::process_failed, join(problems, "\n")));
    left = std::move(not_yet);
  }
}

void Fleet::resume_all() {
  tell_all([](weights::EngineClient& engine) { return engine.send_resume(); });
}

void Fleet::sleep_all(int level) {
  tell_all([&](weights::EngineClient& engine) { return engine.send_sleep(level); });
  asleep_ = true;
}

void Fleet::wake_all(const std::vector<std::string>& tags) {
  tell_all([&](weights::EngineClient& engine) { return engine.send_wake_up(tags); });
  if (std::find(tags.begin(), tags.end(), kKvCache) != tags.end()) asleep_ = false;
}

std::map<std::string, uint64_t> Fleet::checksums(int engine) {
  try {
    return this->engine(engine).checksums();
  } catch (const Error& error) {
    explain(error);
  }
}

std::vector<weights::EngineVersion> Fleet::versions() {
  std::vector<weights::EngineVersion> versions;
  for (const auto& engine : engines_) versions.push_back(engine->weight_version());
  return versions;
}

}  // namespace vime::fleet
