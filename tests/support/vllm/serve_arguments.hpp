// `vllm serve MODEL ...` as argparse reads it: an unknown flag, a missing value or one of a wrong kind ends the program
// with vLLM's kind of message and status 2.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/vllm/flavour.hpp"

namespace vime::stand_in {

struct ServeArguments {
  std::string model;
  std::vector<std::string> served_names;  // the model's path when none is given
  std::string host = "0.0.0.0";
  uint16_t port = 8000;  // 0: the kernel chooses; the start-up line says which
  std::string dtype = "auto";
  std::string load_format = "auto";
  std::string tokenizer;         // "": the model's folder
  std::string transfer_backend;  // of --weight-transfer-config; "": none
  std::string logprobs_mode = "raw_logprobs";
  std::string generation_config = "auto";
  std::string api_key;
  std::string scheduling_policy = "fcfs";
  int64_t max_model_len = 0;  // 0: the model's own
  int64_t max_num_seqs = 256;
  int64_t max_num_batched_tokens = 2048;  // a step's; at least one for each sequence
  int64_t tensor_parallel = 1;
  int64_t pipeline_parallel = 1;
  int64_t max_logprobs = 20;
  int64_t block_size = 1;  // of the prefix cache; small, so that short prompts hit it
  uint64_t seed = 0;
  bool prefix_caching = true;
  bool sleep_mode = false;
  bool scale_out = false;
  bool tokens_only = false;

  int workers() const { return static_cast<int>(tensor_parallel * pipeline_parallel); }
};

// What argparse would have printed before it left with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// arguments: those after the program's name. Error{refused} for what vLLM finds wrong only when it builds its
// configuration (status 1).
ServeArguments parse_serve_arguments(const std::vector<std::string>& arguments, const Flavour& flavour);

}  // namespace vime::stand_in
