// What the engine's front needs from the processes that hold the weights. The front (HTTP, scheduling, state) links no
// LibTorch; lib/executor implements this with one worker process per device, tests with a fake. One thread (the engine
// loop) calls; every call blocks until all workers have answered and throws Error on a failure. Error{process_failed}
// means that the workers are gone or out of step for good; after an error of another kind they serve on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::engine {

// One token to run through the model: it is written at `position` of KV slot `slot` and attends to positions
// 0..position.
struct TokenRow {
  int32_t token = 0;
  int32_t position = 0;
  int32_t slot = 0;
};

// What to draw after a row, or which token to look up there.
struct SampleSpec {
  int32_t row = 0;           // index into rows, not falling; draws from the distribution after that token
  int32_t forced = -1;       // >= 0: nothing is drawn, the log-prob of this token is wanted and no other field counts
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;
  int32_t top_k = -1;  // -1: all
  float min_p = 0.0f;
  uint64_t seed = 0;
  int64_t step = 0;  // index of the token in its response: the draw is a pure function of (seed, step, distribution)
  std::vector<int32_t> banned;  // ids that cannot be drawn (stop ids before min_tokens)
};

struct Sampled {
  int32_t token = 0;
  // Natural log of the probability under the distribution named by logprobs_mode; of a forced token always under the
  // model's own (log softmax of the logits).
  float logprob = 0.0f;
  // With a forced token only: how many tokens are at least as probable, itself included, and the most probable one (the
  // lowest id among equals).
  int32_t rank = 0;
  int32_t top_token = 0;
  float top_logprob = 0.0f;
};

struct Batch {
  std::vector<TokenRow> rows;  // rows of one slot are in position order
  std::vector<SampleSpec> samples;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual int world_size() const = 0;
  virtual int64_t max_slots() const = 0;       // sequences that have a KV slot at the same time
  virtual int64_t max_model_len() const = 0;   // positions of a slot
  virtual int64_t max_batch_rows() const = 0;  // rows of one step
  virtual std::vector<Sampled> step(const Batch& batch) = 0;

  // Weight transfer: the front has checked the order of calls. Payloads are the request's init_info and update_info.
  virtual void init_transfer(const Json& init_info) = 0;
  virtual void start_update() = 0;
  virtual void update(const Json& update_info) = 0;
  // Error{refused} when a parameter of the model was not among the updates since start_update().
  virtual void finish_update() = 0;
  // Content checksum of every parameter (weights/checksum.hpp), summed over the workers' shards; throws when replicas
  // differ.
  virtual std::map<std::string, uint64_t> checksums() = 0;
  virtual void reload(const std::string& model_dir) = 0;  // weights from safetensors

  virtual void sleep(int level) = 0;  // 1: keep weights elsewhere, 2: drop them
  virtual void wake(bool weights, bool kv_cache) = 0;
};

}  // namespace vime::engine
