#include "executor/bench_generate.hpp"

#include <algorithm>
#include <cstdio>
#include <future>
#include <memory>

#include "arch/model_config.hpp"
#include "arch/shapes.hpp"
#include "base/deadline.hpp"
#include "base/files.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "engine/scheduler.hpp"
#include "engine/server.hpp"
#include "executor/worker_pool.hpp"
#include "http/client.hpp"
#include "tensor/tensor.hpp"

namespace vime::executor {
namespace {

// Steps before anything is measured: graphs are captured then.
constexpr int64_t kWarmUpTokens = 8;

std::vector<int32_t> random_prompt(uint64_t index, int64_t tokens, int64_t vocab) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<int32_t>(mix_key(7, index, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  }
  return prompt;
}

// Where the time of a run went, in seconds.
struct Spent {
  double prefill = 0;
  double decode = 0;      // all of the following
  double scheduling = 0;  // in the scheduler, of decode steps
  double worker = 0;      // in the worker's forward pass, of decode steps
  int64_t decode_steps = 0;
  int64_t keys_read = 0;  // of one layer and head, decode steps
};

class Bench {
 public:
  Bench(const GenerateBenchOptions& options, const arch::ModelConfig& config, WorkerPool& pool)
      : options_(options), config_(config), pool_(pool) {}

  Json run(int64_t response_tokens);
  Json over_http(int64_t response_tokens);

 private:
  Spent generate(int64_t response_tokens);
  engine::Sampling sampling(int64_t response_tokens, uint64_t seed) const;

  const GenerateBenchOptions& options_;
  const arch::ModelConfig& config_;
  WorkerPool& pool_;
};

engine::Sampling Bench::sampling(int64_t response_tokens, uint64_t seed) const {
  engine::Sampling sampling;
  sampling.max_tokens = response_tokens;
  sampling.ignore_eos = true;
  sampling.logprobs = true;
  sampling.seed = seed;
  return sampling;
}

Spent Bench::generate(int64_t response_tokens) {
  engine::Scheduler scheduler({pool_.max_slots(), pool_.max_batch_rows(), pool_.max_model_len()}, {}, 0);
  for (int64_t i = 0; i < options_.sequences; ++i) {
    const auto index = static_cast<uint64_t>(i);
    engine::Generation generation;
    generation.prompt = random_prompt(index, options_.prompt_tokens, config_.vocab_size);
    generation.sampling = sampling(response_tokens, index);
    generation.done = [](engine::GenerationResult) {};
    scheduler.add(std::move(generation));
  }
  Spent spent;
  while (true) {
    const auto begin = SteadyClock::now();
    const engine::Batch batch = scheduler.next_batch(true);
    if (batch.rows.empty()) return spent;
    // All sequences are as long as each other: a step that is not one row of each is one of prompts.
    const bool decodes = batch.rows.size() == batch.samples.size();
    double scheduling = seconds_since(begin);
    const std::vector<engine::Sampled> sampled = pool_.step(batch);
    const auto stepped = SteadyClock::now();
    scheduler.accept(sampled, "1");
    scheduling += seconds_since(stepped);
    const double whole = seconds_since(begin);
    const WorkerPool::Figures figures = pool_.figures();
    if (!decodes) {
      spent.prefill += whole;
      continue;
    }
    spent.decode += whole;
    spent.scheduling += scheduling;
    spent.worker += figures.seconds;
    ++spent.decode_steps;
    for (const engine::TokenRow& row : batch.rows) spent.keys_read += row.position + 1;
  }
}

Json Bench::run(int64_t response_tokens) {
  const Spent spent = generate(response_tokens);
  const double steps = static_cast<double>(spent.decode_steps);
  const uint64_t element = tensor::element_bytes(tensor::parse_dtype_name(config_.dtype));
  const double key_bytes =
      2.0 * static_cast<double>(config_.num_hidden_layers * config_.num_key_value_heads * config_.head_dim) *
      static_cast<double>(element);
  const auto milliseconds_of = [&](double seconds) { return steps > 0 ? 1e3 * seconds / steps : 0.0; };
  return {
      {"response_tokens", response_tokens},
      {"tokens_per_second", static_cast<double>(options_.sequences * response_tokens) / (spent.prefill + spent.decode)},
      {"decode_step_ms",
       {{"total", milliseconds_of(spent.decode)},
        {"scheduling", milliseconds_of(spent.scheduling)},
        {"transport", milliseconds_of(spent.decode - spent.scheduling - spent.worker)},
        {"worker", milliseconds_of(spent.worker)}}},
      {"prefill_ms", 1e3 * spent.prefill},
      {"kv_gigabytes_per_second",
       spent.worker > 0 ? key_bytes * static_cast<double>(spent.keys_read) / spent.worker / 1e9 : 0.0}};
}

Json Bench::over_http(int64_t response_tokens) {
  engine::ServerOptions server_options;
  server_options.model_name = options_.shape;
  server_options.vocab_size = config_.vocab_size;
  engine::EngineServer server(server_options, pool_, {});
  server.start();
  http::Client client;
  std::vector<std::future<http::Outcome>> answers;
  const auto begin = SteadyClock::now();
  for (int64_t i = 0; i < options_.sequences; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const Json body = {{"model", options_.shape},
                       {"prompt", random_prompt(index, options_.prompt_tokens, config_.vocab_size)},
                       {"max_tokens", response_tokens},
                       {"ignore_eos", true},
                       {"logprobs", 0},
                       {"return_token_ids", true},
                       {"return_tokens_as_token_ids", true},
                       {"seed", index}};
    http::Request request;
    request.method = "POST";
    request.url = "http://127.0.0.1:" + std::to_string(server.port()) + "/v1/completions";
    request.body = body.dump();
    request.what = "bench generate";
    request.timeout = std::chrono::minutes(10);
    answers.push_back(client.send(std::move(request)));
  }
  for (auto& answer : answers) {
    const http::Outcome outcome = answer.get();
    if (!outcome.answered) throw Error(ErrorKind::process_failed, outcome.error);
    if (outcome.reply.status != 200)
      throw Error(ErrorKind::process_failed, "bench generate: " + http::status_text(outcome.reply));
  }
  const double seconds = seconds_since(begin);
  server.stop();
  return {{"response_tokens", response_tokens},
          {"tokens_per_second", static_cast<double>(options_.sequences * response_tokens) / seconds}};
}

}  // namespace

GenerateBenchOptions generate_bench_options(const Json& json) {
  const std::string what = "bench generate options";
  GenerateBenchOptions options;
  options.shape = json_string(json, "shape", what);
  options.device = json_string(json, "device", what);
  for (const Json& uuid : json_member(json, "device_uuids", what))
    options.device_uuids.push_back(uuid.get<std::string>());
  options.sequences = json_int(json, "sequences", what);
  options.prompt_tokens = json_int(json, "prompt_tokens", what);
  options.response_tokens = json_ints(json, "response_tokens", what);
  options.deterministic = json_bool(json, "deterministic", what);
  options.http = json_bool(json, "http", what);
  return options;
}

Json bench_generate(const GenerateBenchOptions& options) {
  const arch::ModelConfig config =
      fs::is_directory(options.shape) ? arch::read_config(options.shape) : arch::shape(options.shape);
  const TempDir folder;
  write_file_atomic(folder.path() / "config.json", arch::config_json(config, config.dtype).dump(2) + "\n");
  int64_t longest = 0;
  for (const int64_t tokens : options.response_tokens) longest = std::max(longest, tokens);
  ExecutorOptions workers;
  workers.model_dir = folder.path().string();
  workers.random_weights = true;
  workers.device = options.device;
  workers.device_uuids = options.device_uuids;
  workers.run_id = "bench";
  workers.max_model_len = options.prompt_tokens + longest;
  workers.max_num_seqs = options.sequences;
  workers.deterministic = options.deterministic;
  const auto executor = start_workers(workers);
  auto& pool = dynamic_cast<WorkerPool&>(*executor);
  Bench bench(options, config, pool);
  bench.run(kWarmUpTokens);
  Json runs = Json::array();
  for (const int64_t tokens : options.response_tokens) runs.push_back(bench.run(tokens));
  Json result = {{"shape", options.shape},
                 {"device", options.device},
                 {"workers", pool.world_size()},
                 {"sequences", options.sequences},
                 {"slots", pool.max_slots()},
                 {"prompt_tokens", options.prompt_tokens},
                 {"deterministic", options.deterministic},
                 {"runs", runs}};
  if (options.http && !options.response_tokens.empty()) result["http"] = bench.over_http(longest);
  return result;
}

std::string generate_bench_text(const Json& result) {
  const auto number = [](const Json& object, const char* key, int decimals) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, object.at(key).get<double>());
    return std::string(text);
  };
  std::string text = result.at("shape").get<std::string>() + ": " + result.at("sequences").dump() + " sequences, " +
                     result.at("slots").dump() + " at a time, prompts of " + result.at("prompt_tokens").dump() +
                     " tokens" + (result.at("deterministic").get<bool>() ? ", deterministic" : "") + "\n";
  for (const Json& run : result.at("runs")) {
    const Json& step = run.at("decode_step_ms");
    text += run.at("response_tokens").dump() + " tokens each: " + number(run, "tokens_per_second", 0) +
            " tokens/s; a step " + number(step, "total", 2) + " ms (worker " + number(step, "worker", 2) +
            ", transport " + number(step, "transport", 2) + ", scheduling " + number(step, "scheduling", 2) +
            "), keys and values at " + number(run, "kv_gigabytes_per_second", 0) + " GB/s; prompts " +
            number(run, "prefill_ms", 1) + " ms\n";
  }
  if (result.contains("http")) {
    const Json& http = result.at("http");
    text += http.at("response_tokens").dump() + " tokens each over HTTP: " + number(http, "tokens_per_second", 0) +
            " tokens/s\n";
  }
  return text;
}

}  // namespace vime::executor
