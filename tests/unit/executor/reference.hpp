// The reference models of tests/data/models (see lib/model's tests for where they come from) and ways to run them.
#pragma once

#include <torch/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.hpp"
#include "engine/scheduler.hpp"
#include "executor/pages.hpp"
#include "executor/start_workers.hpp"
#include "model/checkpoint.hpp"
#include "model/decoder.hpp"
#include "model/logprobs.hpp"
#include "tensor/safetensors.hpp"

namespace vime::executor {

inline const std::vector<std::string>& reference_names() {
  static const std::vector<std::string> names = {"llama", "llama_rope_scaled", "qwen2", "qwen3", "qwen3_tied_mha"};
  return names;
}
inline fs::path reference_dir(const std::string& name) {
  return fs::path(VIME_TEST_DATA) / "models" / name;
}

inline torch::Tensor reference_tensor(const std::string& model, const std::string& name) {
  const tensor::SafetensorsFile file(reference_dir(model) / "reference.safetensors");
  const tensor::TensorView& view = file.find(name);
  return torch::from_blob(const_cast<std::byte*>(view.data), view.info.shape, model::scalar_type(view.info.dtype))
      .clone();
}

// A whole model in this process.
struct LocalModel {
  explicit LocalModel(const std::string& name)
      : config(arch::read_config(reference_dir(name))),
        arena(arch::arena_layout(config, tensor::DType::f32, 0, 1).total_bytes),
        decoder(config, tensor::DType::f32, model::single_rank(), arena.data()) {
    // Threads started here would not survive the forks of other cases.
    at::set_num_threads(1);
    model::load_weights(decoder, reference_dir(name));
  }
  arch::ModelConfig config;
  Pages arena;
  model::Decoder decoder;
};

inline ExecutorOptions options_for(const std::string& model, int workers) {
  ExecutorOptions options;
  options.model_dir = reference_dir(model).string();
  options.dtype = "float32";
  for (int i = 0; i < workers; ++i)
    options.device_uuids.push_back("00000000-0000-4000-8000-00000000000" + std::to_string(i));
  options.run_id = "test";
  options.max_model_len = 64;
  options.max_num_seqs = 64;
  options.rows_per_step = 96;
  options.rows_per_block = 16;
  options.start_timeout = std::chrono::seconds(60);
  options.step_timeout = std::chrono::seconds(60);
  options.control_timeout = std::chrono::seconds(60);
  return options;
}

struct Asked {
  std::vector<int32_t> prompt;
  engine::Sampling sampling;
};

// Runs all of them through a scheduler, in the order given, and returns the results in the order of `asked`.
inline std::vector<engine::GenerationResult> run(engine::Executor& executor, const std::vector<Asked>& asked,
                                                 const std::vector<std::size_t>& order) {
  engine::Scheduler scheduler({executor.max_slots(), executor.max_batch_rows(), executor.max_model_len()}, {}, 0);
  std::vector<engine::GenerationResult> results(asked.size());
  for (const std::size_t i : order) {
    engine::Generation generation;
    generation.prompt = asked[i].prompt;
    generation.sampling = asked[i].sampling;
    generation.done = [&results, i](engine::GenerationResult result) { results[i] = std::move(result); };
    scheduler.add(std::move(generation));
  }
  while (true) {
    const engine::Batch batch = scheduler.next_batch(true);
    if (batch.rows.empty()) return results;
    scheduler.accept(executor.step(batch), "1");
  }
}

// The first choice of each.
inline std::vector<engine::Choice> generate(engine::Executor& executor, const std::vector<Asked>& asked,
                                            const std::vector<std::size_t>& order) {
  std::vector<engine::Choice> choices;
  for (engine::GenerationResult& result : run(executor, asked, order))
    choices.push_back(std::move(result.choices.at(0)));
  return choices;
}

}  // namespace vime::executor
