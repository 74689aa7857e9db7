// `vime bench generate`: how fast the embedded engine generates. A model of a known shape with random weights, as many
// sequences as run at a time, all of one length, through the engine's own scheduler and workers, and once more over
// HTTP; nothing is left out that a run would pay for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::executor {

struct GenerateBenchOptions {
  std::string shape = "qwen3-0.6b";  // one of arch::shape_names(), or a model directory
  std::string device = "cuda";
  std::vector<std::string> device_uuids;  // one tensor-parallel worker each
  int64_t sequences = 256;
  int64_t prompt_tokens = 128;
  std::vector<int64_t> response_tokens = {512, 1024};
  bool deterministic = false;
  bool http = true;  // the last length over HTTP too
};

GenerateBenchOptions generate_bench_options(const Json& json);

// {"shape", "sequences", ..., "runs": [{"response_tokens", "tokens_per_second", "decode_step_ms": {"total",
// "scheduling", "transport", "worker"}, "prefill_ms", "kv_gigabytes_per_second"}], "http": {...}}. Forks the workers:
// call from a process of one thread that has not touched CUDA.
Json bench_generate(const GenerateBenchOptions& options);

// The same as lines for people.
std::string generate_bench_text(const Json& result);

}  // namespace vime::executor
