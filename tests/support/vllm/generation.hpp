// What a client asks for and what comes of it, typed. Plain values; a Work belongs to the engine until it is done.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vime::stand_in {

struct Sampling {
  int32_t n = 1;
  int64_t max_tokens = 16;
  int64_t min_tokens = 0;
  double temperature = 1.0;
  double top_p = 1.0;
  int32_t top_k = -1;
  double min_p = 0.0;
  std::optional<uint64_t> seed;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int32_t> logprobs;         // so many most probable tokens beside the sampled one
  std::optional<int32_t> prompt_logprobs;  // the same beside the prompt's own tokens
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
  int32_t rank = 0;  // how many tokens are at least as probable, itself included
};

// A token at its place: itself, and the most probable ones as many as were asked for.
struct TokenPlace {
  TokenLogprob own;
  std::vector<TokenLogprob> top;
};

struct VersionSpan {
  std::string version;
  int64_t start = 0;
  int64_t end = 0;
};

struct Choice {
  std::vector<int32_t> tokens;
  std::vector<TokenPlace> places;  // one per token
  std::string finish_reason;       // stop, length or abort; "" while it runs
  std::optional<int32_t> stop_token;
  std::vector<VersionSpan> versions;
};

// One prompt and its n samples.
struct Work {
  std::string id;  // as the engine names it: "cmpl-<id>-<prompt index>", "generate-tokens-<id>"
  std::vector<int32_t> prompt;
  Sampling sampling;
  std::string cache_salt;
  std::optional<int64_t> abort_after;  // planted: so many tokens

  std::vector<Choice> choices;
  std::vector<TokenPlace> prompt_places;  // of the prompt's tokens from the second on
  bool done = false;
  std::string error;  // not empty: the engine died
};

}  // namespace vime::stand_in
