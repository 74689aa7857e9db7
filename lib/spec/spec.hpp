// An experiment as plain data: one struct per section of the YAML file, one field per key, under the same name.
// Field defaults here are the file's defaults. After spec::load every field holds the value that the run uses, derived
// ones included; what each key means and which values it takes stands in the key table, keys_*.cpp (and in
// docs/spec.md, which is printed from there).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vime::spec {

using std::chrono::milliseconds;

// A number of bytes; written as 512MiB in YAML.
struct Bytes {
  uint64_t count = 0;
  bool operator==(const Bytes&) const = default;
};

// Exactly one of path and preset is set.
struct Model {
  std::optional<std::string> path;
  std::optional<std::string> preset;
  std::optional<std::string> ref_load;
  std::string tokenizer = "auto";
  bool operator==(const Model&) const = default;
};

struct Data {
  std::vector<std::string> prompt_data;
  std::string input_key = "prompt";
  std::optional<std::string> label_key = "label";
  std::string metadata_key = "metadata";
  std::string reward_key = "reward_type";
  bool apply_chat_template = false;
  bool rollout_shuffle = false;
  int64_t max_bad_lines = 0;
  Bytes max_line_bytes{16ull << 20};
  bool operator==(const Data&) const = default;
};

struct Reward {
  std::optional<std::string> type;  // unset only where nothing is scored
  std::optional<std::string> pattern;
  std::vector<std::string> command;
  std::optional<std::string> url;
  bool group_rm = false;
  std::string reward_key = "reward";
  milliseconds timeout{60000};
  double max_missing_ratio = 0.05;
  int64_t num_workers = 4;
  milliseconds startup_timeout{60000};
  int64_t max_restarts = 1000;
  int64_t concurrency = 0;
  int64_t max_retries = 5;
  milliseconds retry_backoff{500};
  bool operator==(const Reward&) const = default;
};

struct Placement {
  std::string device = "auto";
  std::vector<int64_t> nodes;
  std::vector<std::string> device_uuids;
  int64_t devices_per_gpu = 1;
  bool colocate = false;
  int64_t actor_num_nodes = 1;
  int64_t actor_num_gpus_per_node = 1;
  int64_t rollout_num_gpus = 0;
  int64_t rollout_num_gpus_per_engine = 1;
  bool allow_engines_across_nodes = false;
  bool operator==(const Placement&) const = default;
};

struct Trainer {
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t global_batch_size = 0;
  int64_t num_steps_per_rollout = 0;
  std::string optimizer = "adam";
  double lr = 1e-6;
  std::string lr_decay_style = "constant";
  double min_lr = 0.0;
  int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction;
  int64_t lr_decay_iters = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double weight_decay = 0.01;
  double clip_grad = 1.0;
  bool skip_nonfinite = true;
  milliseconds timeout{3600000};
  int64_t max_tokens_per_gpu = 4096;
  std::string dtype = "auto";
  std::string recompute_granularity = "auto";
  bool operator==(const Trainer&) const = default;
};

struct Algorithm {
  std::string loss_type = "policy_loss";
  std::string advantage_estimator = "grpo";
  double eps_clip = 0.2;
  double eps_clip_high = 0.2;
  std::optional<double> eps_clip_c;
  double entropy_coef = 0.0;
  double kl_coef = 0.0;
  double kl_loss_coef = 0.0;
  std::string kl_loss_type = "low_var_kl";
  bool rewards_normalization = true;
  bool grpo_std_normalization = true;
  bool calculate_per_token_loss = false;
  bool operator==(const Algorithm&) const = default;
};

struct Rollout {
  int64_t num_rollout = 0;
  int64_t rollout_batch_size = 0;
  int64_t n_samples_per_prompt = 1;
  int64_t rollout_max_response_len = 0;
  std::optional<int64_t> rollout_max_prompt_len;
  double rollout_temperature = 1.0;
  double rollout_top_p = 1.0;
  int64_t rollout_top_k = -1;
  std::vector<int64_t> rollout_stop_token_ids;
  bool operator==(const Rollout&) const = default;
};

struct Engine {
  std::string backend = "embedded";
  std::optional<int64_t> max_model_len;
  int64_t max_num_seqs = 256;
  double gpu_memory_utilization = 0.9;
  std::string logprobs_mode = "processed_logprobs";
  milliseconds startup_timeout{120000};
  milliseconds request_timeout{600000};
  int64_t server_concurrency = 512;
  std::vector<std::string> vllm_command = {"vllm", "serve"};
  std::vector<std::string> vllm_args;
  std::vector<std::string> env;
  std::vector<std::string> urls;
  std::optional<std::string> api_key_env;
  bool operator==(const Engine&) const = default;
};

struct WeightSync {
  std::string transport = "auto";
  Bytes update_weight_buffer_size{512ull << 20};
  std::optional<std::string> disk_dir;
  milliseconds timeout{900000};
  bool operator==(const WeightSync&) const = default;
};

// What leaves the GPU while the other side works on it.
struct Offload {
  bool train = false;
  bool rollout = false;
  bool operator==(const Offload&) const = default;
};

struct EvalDataset {
  std::string name;
  std::string prompt_data;
  std::optional<std::string> reward;  // unset: the line's own, else the run's
  std::optional<int64_t> num_samples;
  int64_t n_samples_per_eval_prompt = 1;
  double temperature = 0.0;
  double top_p = 1.0;
  int64_t top_k = -1;
  int64_t max_response_len = 0;
  bool operator==(const EvalDataset&) const = default;
};

// What to evaluate on stands in `datasets`, once the spec is resolved; prompt_data is the short form of a single entry
// and empty then.
struct Eval {
  std::optional<int64_t> eval_interval;
  std::optional<std::string> prompt_data;
  std::optional<std::string> reward;
  std::optional<int64_t> num_samples = 256;
  int64_t n_samples_per_eval_prompt = 1;
  double temperature = 0.0;
  double top_p = 1.0;
  int64_t top_k = -1;
  int64_t max_response_len = 0;
  bool skip_eval_before_train = false;
  std::vector<EvalDataset> datasets;
  bool operator==(const Eval&) const = default;
};

struct Checkpoint {
  std::optional<int64_t> save_interval;
  int64_t keep_last = 2;
  std::optional<int64_t> keep_every;
  bool operator==(const Checkpoint&) const = default;
};

struct Debug {
  std::optional<std::string> save_rollout;
  std::optional<std::string> load_rollout;
  bool rollout_only = false;
  bool train_only = false;
  bool operator==(const Debug&) const = default;
};

struct Ci {
  double kl_tolerance = 1e-6;
  double logprob_gap_tolerance = 1e-4;
  bool operator==(const Ci&) const = default;
};

struct ExperimentSpec {
  std::string name = "experiment";
  int64_t seed = 1234;
  bool ci_test = false;
  bool deterministic = false;
  Model model;
  Data data;
  Reward reward;
  Placement placement;
  Trainer trainer;
  Algorithm algorithm;
  Rollout rollout;
  Engine engine;
  WeightSync weight_sync;
  Offload offload;
  Eval eval;
  Checkpoint checkpoint;
  Debug debug;
  Ci ci;
  bool operator==(const ExperimentSpec&) const = default;
};

}  // namespace vime::spec
