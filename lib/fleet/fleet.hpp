// The engines of a run: sends them prompts, spreads the load, and steers them through pauses. One thread; waits go
// through the supervisor, so that a death ends them within a moment.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/supervisor.hpp"
#include "http/client.hpp"
#include "weights/engine_client.hpp"

namespace vime::fleet {

struct SamplingParams {
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = -1;
  int64_t max_tokens = 16;
  std::vector<int64_t> stop_token_ids;
};

struct GenerateJob {
  std::string name;  // "sample 12", for errors
  std::vector<int64_t> prompt;
  SamplingParams sampling;
  int64_t seed = 0;
  int64_t session = 0;  // jobs of one session go to one engine where they can: it has their prompt's keys and values
};

struct Generation {
  std::vector<int64_t> tokens;
  std::vector<double> logprobs;  // [tokens]
  std::string finish_reason;     // "stop", "length", "abort"
  // Weight version when it began and when it ended: what the engine says, or else what it was pushed last.
  int64_t version_first = 0;
  int64_t version_last = 0;
  std::string engine;
};

// What can be woken by itself: tags of vLLM's /wake_up.
inline constexpr char kWeights[] = "weights";
inline constexpr char kKvCache[] = "kv_cache";

struct FleetOptions {
  std::chrono::milliseconds transfer_timeout;
  std::chrono::milliseconds request_timeout;
  int64_t concurrency = 512;  // requests in flight at an engine
  int64_t vocab_size = 0;     // of the model; 0: tokens of prompts are not looked at
  bool shared = false;        // others may send requests to these engines
};

class Fleet {
 public:
  Fleet(http::Client& client, Supervisor& supervisor, std::vector<weights::EngineAddress> engines,
        FleetOptions options);

  int size() const { return static_cast<int>(engines_.size()); }
  weights::EngineClient& engine(int id) { return *engines_.at(static_cast<size_t>(id)); }

  // Generates for all jobs; results stand in the jobs' order. Which engine gets which: see Routing. Error{refused} for
  // a token that the model does not have: there are servers that one such request ends. `finished` hears each result as
  // it arrives (index into jobs), `meanwhile` is called every few milliseconds until the last has come; both on the
  // calling thread. A failed request is Error{process_failed}.
  std::vector<Generation> generate(const std::vector<GenerateJob>& jobs,
                                   const std::function<void(size_t job, const Generation&)>& finished,
                                   const std::function<void()>& meanwhile = {});

  // For each sequence the log-probs of its tokens from the second on ([length - 1]), as this one engine computes them:
  // under the model's own distribution, without temperature. All requests are in flight at once. Sequences are shorter
  // than the engine's max_model_len. Error{process_failed} names the sequence and the engine.
  std::vector<std::vector<double>> prompt_logprobs(int engine, const std::vector<std::vector<int64_t>>& sequences);

  // Throws `error`, or rather the death of a process that explains it.
  [[noreturn]] void explain(const Error& error) { supervisor_.explain(error); }

  // Each tells all engines at once. Error{process_failed} names those that failed, or is the death that explains it.
  // pause_all() returns when every engine is idle. vLLM answers /pause later: a refusal in that answer is the error of
  // the next of these calls.
  void pause_all();
  void resume_all();
  void sleep_all(int level);
  void wake_all(const std::vector<std::string>& tags);
  std::vector<weights::EngineVersion> versions();
  std::map<std::string, uint64_t> checksums(int engine);  // see EngineClient; errors as above

 private:
  using Replies = std::vector<std::future<http::Outcome>>;  // by engine
  using Send = std::function<std::future<http::Outcome>(weights::EngineClient&)>;
  // Requests that are made when they are sent, since only then it is known where they go.
  struct Calls {
    size_t count = 0;
    std::function<std::optional<size_t>()> next;  // which is sent next, if one may be; asked again after each reply
    std::function<http::Request(size_t)> request;
    std::function<void(size_t, const http::Reply&)> take;  // a reply of status 200
  };
  // Until all are answered. `meanwhile` (may be empty) is called every few milliseconds. The first failure is thrown.
  void call_all(const Calls& calls, const std::function<void()>& meanwhile);
  Replies send_all(const Send& send);
  void check_all(Replies replies);
  void tell_all(const Send& send);
  void wait_until_paused();
  void check_tokens(const std::vector<GenerateJob>& jobs) const;

  http::Client& client_;
  Supervisor& supervisor_;
  std::vector<std::unique_ptr<weights::EngineClient>> engines_;
  FleetOptions options_;
  Replies pauses_;       // to /pause, where engines had paused before they answered
  bool asleep_ = false;  // engines cannot generate for want of memory
};

// The body of POST /v1/completions for a job, and what its reply says. Sampling fields are all sent: an engine's own
// defaults never apply.
std::string completion_body(const GenerateJob& job, const std::string& model);
// tells_spans: the reply says which versions computed the tokens; the versions are left at 0 otherwise.
Generation parse_completion(const std::string& body, const std::string& what, bool tells_spans = true);

// The same for the log-probs of a sequence's own tokens.
std::string prompt_logprobs_body(const std::vector<int64_t>& sequence, const std::string& model);
std::vector<double> parse_prompt_logprobs(const std::string& body, const std::vector<int64_t>& sequence,
                                          const std::string& what);

}  // namespace vime::fleet
