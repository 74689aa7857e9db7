// The embedded engine's worker processes behind the engine's Executor interface: one process per device, each with a
// tensor-parallel shard of the model, its part of the KV cache, and a socket to this process. One thread at a time
// calls.
//
// Every call has a deadline. A worker that ends, falls silent or gets out of step with the others is
// Error{process_failed} naming it; then all workers are ended and every later call fails with the same text. Errors
// that a worker reports and survives (a payload that does not fit, a file that is missing) keep another kind.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/executor.hpp"

namespace vime::executor {

// Which log-probs a drawn token has. Those of a prompt's own tokens are always raw, as in vLLM.
enum class LogprobsMode {
  processed,  // of the distribution that was drawn from: after temperature and filters
  raw,        // log softmax of the model's logits
};

struct ExecutorOptions {
  std::string model_dir;                  // config.json, and the weights unless load_weights is false
  bool load_weights = true;               // false: memory only, until the first push or reload
  std::string dtype = "auto";             // float32, bfloat16, float16; auto: config.json's
  std::string device = "cpu";             // cpu or cuda
  std::vector<std::string> device_uuids;  // one worker each
  std::string run_id;                     // for process titles
  int64_t max_model_len = 0;              // 0: the model's own limit
  int64_t max_num_seqs = 256;             // sequences with a KV slot
  int64_t rows_per_step = 512;            // tokens of one step
  // Every linear layer sees exactly this many rows, padded, so that no row's result depends on the others.
  int64_t rows_per_block = 64;
  int threads_per_worker = 1;
  LogprobsMode logprobs_mode = LogprobsMode::processed;
  std::chrono::milliseconds start_timeout{300'000};    // reading weights included
  std::chrono::milliseconds step_timeout{300'000};     // of one step
  std::chrono::milliseconds control_timeout{900'000};  // of one weight, sleep or checksum call
};

// Forks the workers and returns when all are ready; call before the process has a second thread. The forking thread
// must live as long as the executor: workers die with it. Error{refused} for a model or setting that does not fit. The
// destructor ends and reaps every worker.
std::unique_ptr<engine::Executor> start_workers(const ExecutorOptions& options);

}  // namespace vime::executor
