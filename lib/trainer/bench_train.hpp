// How fast a trainer's step is on one GPU, with random weights of a known model's shape and random tokens. One thread;
// a few seconds for each case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "arch/recompute.hpp"
#include "base/json.hpp"

namespace vime::trainer {

struct TrainBenchOptions {
  std::string shape = "qwen3-4b";  // one of arch::shape_names()
  std::string device_uuid;
  int64_t tokens = 16384;   // of a micro-batch
  int64_t sequence = 4096;  // tokens of each of its sequences
  std::vector<int64_t> micro_batches = {1, 4};
  arch::Recompute recompute = arch::Recompute::selective;
  bool layers_alone = true;  // a case of its own: no embedding, head, loss or optimizer
  int64_t layers = 0;        // of the model; 0: the shape's own
  int repeats = 3;
  double peak_tflops = 989;  // what MFU is of: dense bf16 of an H200
  bool kernels = false;      // also how long which kernels ran, of one repeat
};

// {"shape", "device", "cases": [{"case", "micro_batches", "seconds", "tokens_per_s", "model_tflops", "mfu",
//  "peak_bytes", "kernels": [{"name", "calls", "ms"}]}]}. Model FLOPs: 6 x parameters of products x tokens and three
// times attention's, causal ones counted half; recomputation is not counted.
Json bench_train(const TrainBenchOptions& options);

TrainBenchOptions train_bench_options(
    const Json& json);  // members have the names of the fields; not layers_alone and peak_tflops
// The figures as lines for people.
std::string train_bench_text(const Json& result);

}  // namespace vime::trainer
