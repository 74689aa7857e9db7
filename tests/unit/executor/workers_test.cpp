// Worker processes: results at one and two workers, determinism under load, pushes, and workers that die.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "torch_doctest.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.hpp"
#include "executor/worker_pool.hpp"
#include "reference.hpp"
#include "weights/bucket.hpp"
#include "weights/checksum.hpp"
#include "weights/shared_arena.hpp"

using namespace vime;
using namespace vime::executor;

namespace {

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

std::vector<pid_t> pids_of(engine::Executor& executor) {
  return dynamic_cast<WorkerPool&>(executor).pids();
}

bool is_gone(pid_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

std::string error_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

engine::Batch one_row() {
  engine::Batch batch;
  batch.rows = {{3, 0, 0}};
  batch.samples = {engine::SampleSpec{}};
  return batch;
}

// All tensors of a checkpoint of one file in shared memory, as a colocated push sends them.
struct Push {
  explicit Push(const std::string& model) : file(reference_dir(model) / "model.safetensors"), arena(1 << 22) {
    std::vector<weights::PlacedTensor> placed;
    uint64_t offset = 0;
    for (const tensor::TensorView& view : file.tensors()) {
      placed.push_back({view.info, offset});
      std::memcpy(arena.data() + offset, view.data, view.info.bytes());
      offset += (view.info.bytes() + 63) / 64 * 64;
    }
    REQUIRE(offset <= arena.bytes());
    chunks = weights::arena_chunks(placed, 40'000);
    REQUIRE(chunks.size() > 2);
  }
  Json update_info(std::size_t number, const std::vector<std::string>& uuids) const {
    const weights::ArenaChunk& chunk = chunks[number];
    Json info = weights::manifest_json(chunk.bucket);
    for (const std::string& uuid : uuids)
      info["handles"][uuid] = {{"handle", arena.handle()}, {"offset", chunk.begin}, {"bytes", chunk.bucket.bytes}};
    return info;
  }
  tensor::SafetensorsFile file;
  weights::SharedArena arena;
  std::vector<weights::ArenaChunk> chunks;
};

}  // namespace

TEST_CASE("greedy continuations equal the reference with one and two workers") {
  for (const std::string& name : reference_names()) {
    for (const int workers : {1, 2}) {
      CAPTURE(name);
      CAPTURE(workers);
      const auto executor = start_workers(options_for(name, workers));
      CHECK(executor->world_size() == workers);
      const torch::Tensor prompts = reference_tensor(name, "prompt").to(torch::kInt32);
      const torch::Tensor greedy = reference_tensor(name, "greedy").to(torch::kInt32);
      std::vector<Asked> asked;
      for (int64_t i = 0; i < prompts.size(0); ++i) {
        Asked one;
        one.prompt.assign(prompts[i].data_ptr<int32_t>(), prompts[i].data_ptr<int32_t>() + prompts.size(1));
        one.sampling.temperature = 0;
        one.sampling.max_tokens = greedy.size(1);
        asked.push_back(one);
      }
      const auto choices = generate(*executor, asked, in_order(asked.size()));
      for (int64_t i = 0; i < prompts.size(0); ++i) {
        const std::vector<int32_t> expected(greedy[i].data_ptr<int32_t>(),
                                            greedy[i].data_ptr<int32_t>() + greedy.size(1));
        CHECK(choices[static_cast<std::size_t>(i)].token_ids == expected);
      }
    }
  }
}

TEST_CASE(
    "the same prompt alone, among 256 and in shuffled arrival gives the same ids and the same bits of log-probs") {
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    const auto executor = start_workers(options_for("qwen3", workers));
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < 256; ++i) {
      Asked one;
      for (uint64_t k = 0; k < 1 + mix_key(i, 7) % 24; ++k)
        one.prompt.push_back(static_cast<int32_t>(mix_key(i, k) % 160));
      one.sampling.max_tokens = 1 + static_cast<int64_t>(mix_key(i, 8) % 10);
      one.sampling.seed = i;
      asked.push_back(one);
    }
    const auto together = generate(*executor, asked, in_order(asked.size()));
    std::vector<std::size_t> shuffled;
    for (const uint64_t i : permutation(asked.size(), 99)) shuffled.push_back(i);
    const auto in_other_order = generate(*executor, asked, shuffled);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      REQUIRE(together[i].token_ids.size() == static_cast<std::size_t>(asked[i].sampling.max_tokens));
      REQUIRE(together[i].token_ids == in_other_order[i].token_ids);
      REQUIRE(together[i].logprobs == in_other_order[i].logprobs);
    }
    for (const std::size_t i : {0, 17, 100, 255}) {
      const auto alone = generate(*executor, {asked[i]}, {0});
      CHECK(alone[0].token_ids == together[i].token_ids);
      CHECK(alone[0].logprobs == together[i].logprobs);
    }
  }
}

TEST_CASE("prompt log-probs are those of a teacher-forced pass, with one and two workers, over several steps") {
  const std::string name = "qwen3";
  const torch::Tensor ids = reference_tensor(name, "input_ids");  // [3, length]
  const torch::Tensor logits = reference_tensor(name, "logits").to(torch::kFloat64);
  const torch::Tensor expected = torch::log_softmax(logits, -1);
  // Relative 1e-5 of the largest logit: the reference's own tolerance for float32.
  const double tolerance = 1e-5 * logits.abs().max().item<double>();
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    ExecutorOptions options = options_for(name, workers);
    options.rows_per_step = 7;  // no prompt fits in a step
    options.rows_per_block = 4;
    const auto executor = start_workers(options);
    std::vector<Asked> asked;
    for (int64_t i = 0; i < ids.size(0); ++i) {
      Asked one;
      for (int64_t k = 0; k < ids.size(1); ++k) one.prompt.push_back(static_cast<int32_t>(ids[i][k].item<int64_t>()));
      one.sampling.max_tokens = 1;
      one.sampling.temperature = 0.5;  // log-probs of prompts are without it
      one.sampling.prompt_logprobs = 1;
      asked.push_back(one);
    }
    REQUIRE(asked[0].prompt.size() > 7);
    const auto results = run(*executor, asked, in_order(asked.size()));
    for (std::size_t i = 0; i < asked.size(); ++i) {
      REQUIRE(results[i].prompt_logprobs.size() == asked[i].prompt.size() - 1);
      for (std::size_t k = 0; k + 1 < asked[i].prompt.size(); ++k) {
        const torch::Tensor row = expected[static_cast<int64_t>(i)][static_cast<int64_t>(k)];
        const engine::PromptLogprob& found = results[i].prompt_logprobs[k];
        const double own = row[asked[i].prompt[k + 1]].item<double>();
        CHECK(std::abs(static_cast<double>(found.logprob) - own) < tolerance);
        CHECK(std::abs(static_cast<double>(found.top_logprob) - row.max().item<double>()) < tolerance);
        CHECK(std::abs(row[found.top_token].item<double>() - row.max().item<double>()) < tolerance);
        // The rank, but for tokens that lie as close as the tolerance.
        CHECK(found.rank >= (row > own + 2 * tolerance).sum().item<int64_t>() + 1);
        CHECK(found.rank <= (row >= own - 2 * tolerance).sum().item<int64_t>());
      }
      // Not one bit depends on the company.
      const bool same_alone = run(*executor, {asked[i]}, {0})[0].prompt_logprobs == results[i].prompt_logprobs;
      CHECK(same_alone);
    }
  }
}

TEST_CASE("a push over shared memory fills engines of one and two workers with the same contents") {
  const std::string model = "llama";
  const Push push(model);
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    ExecutorOptions options = options_for(model, workers);
    options.load_weights = false;
    const auto executor = start_workers(options);
    executor->init_transfer({{"backend", "shm"}});
    executor->start_update();
    for (std::size_t i = 0; i < push.chunks.size(); ++i) executor->update(push.update_info(i, options.device_uuids));
    executor->finish_update();
    const auto sums = executor->checksums();
    CHECK(sums.size() == push.file.tensors().size());
    for (const tensor::TensorView& view : push.file.tensors()) {
      CAPTURE(view.info.name);
      CHECK(sums.at(view.info.name) == weights::full_checksum(view));
    }
    const auto loaded = start_workers(options_for(model, workers));
    CHECK(loaded->checksums() == sums);
    Asked asked{{1, 2, 3}, {}};
    asked.sampling.seed = 4;
    CHECK(generate(*executor, {asked}, {0})[0].logprobs == generate(*loaded, {asked}, {0})[0].logprobs);

    // A level 2 sleep drops them, and a reload brings them back.
    executor->sleep(2);
    executor->wake(true, true);
    CHECK(executor->checksums() != sums);
    executor->reload(options.model_dir);
    CHECK(executor->checksums() == sums);
    executor->sleep(1);
    executor->wake(true, true);
    CHECK(executor->checksums() == sums);
  }
}

TEST_CASE("an update that misses a bucket, a uuid or a shape is refused, and the workers live on") {
  const Push push("llama");
  ExecutorOptions options = options_for("llama", 2);
  options.load_weights = false;
  const auto executor = start_workers(options);
  executor->init_transfer({{"backend", "shm"}});
  executor->start_update();
  executor->update(push.update_info(0, options.device_uuids));
  const std::string missing = error_of([&] { executor->finish_update(); }, ErrorKind::refused);
  CHECK(holds(missing, "parameters were not sent since start_weight_update"));
  CHECK(holds(missing, push.chunks[1].bucket.entries[0].info.name));

  const std::string foreign =
      error_of([&] { executor->update(push.update_info(0, {options.device_uuids[0]})); }, ErrorKind::refused);
  CHECK(holds(foreign, "engine worker 1"));
  CHECK(holds(foreign, options.device_uuids[1]));

  Json misnamed = push.update_info(0, options.device_uuids);
  misnamed["names"][0] = "model.layers.9.nothing";
  CHECK(holds(error_of([&] { executor->update(misnamed); }, ErrorKind::refused),
              "no parameter \"model.layers.9.nothing\""));

  for (std::size_t i = 0; i < push.chunks.size(); ++i) executor->update(push.update_info(i, options.device_uuids));
  executor->finish_update();
  CHECK(executor->step(one_row()).size() == 1);
}

TEST_CASE("a killed worker is an error that names it, and no process is left") {
  for (const std::size_t victim : {0, 1}) {
    CAPTURE(victim);
    const auto executor = start_workers(options_for("llama", 2));
    const std::vector<pid_t> pids = pids_of(*executor);
    REQUIRE(pids.size() == 2);
    CHECK(executor->step(one_row()).size() == 1);
    ::kill(pids[victim], SIGKILL);
    const std::string text = error_of([&] { executor->step(one_row()); }, ErrorKind::process_failed);
    CHECK(holds(text, "engine worker " + std::to_string(victim) + " (pid " + std::to_string(pids[victim]) +
                          ") was killed by signal 9 (SIGKILL)"));
    CHECK(is_gone(pids[0]));
    CHECK(is_gone(pids[1]));
    CHECK(error_of([&] { executor->checksums(); }, ErrorKind::process_failed) == text);
  }
}

TEST_CASE("a worker that hangs is an error within the deadline, and no process is left") {
  ExecutorOptions options = options_for("llama", 1);
  options.step_timeout = std::chrono::milliseconds(300);
  const auto executor = start_workers(options);
  const pid_t pid = pids_of(*executor).at(0);
  ::kill(pid, SIGSTOP);
  const std::string text = error_of([&] { executor->step(one_row()); }, ErrorKind::process_failed);
  CHECK(holds(text, "engine worker 0 (pid " + std::to_string(pid) + ") did not answer within 300 ms"));
  CHECK(is_gone(pid));
}

TEST_CASE("workers end with their executor") {
  std::vector<pid_t> pids;
  {
    const auto executor = start_workers(options_for("llama", 2));
    pids = pids_of(*executor);
    for (const pid_t pid : pids) CHECK_FALSE(is_gone(pid));
  }
  for (const pid_t pid : pids) CHECK(is_gone(pid));
}

TEST_CASE("a model that cannot be run so is refused before or while starting, and leaves no process") {
  ExecutorOptions options = options_for("llama", 3);
  CHECK_FALSE(error_of([&] { start_workers(options); }, ErrorKind::refused).empty());
  options = options_for("llama", 1);
  options.max_model_len = 100'000;
  CHECK(holds(error_of([&] { start_workers(options); }, ErrorKind::refused), "512 positions"));
  const TempDir folder;
  fs::copy_file(reference_dir("llama") / "config.json", folder.path() / "config.json");
  options = options_for("llama", 2);
  options.model_dir = folder.path().string();
  CHECK(holds(error_of([&] { start_workers(options); }, ErrorKind::refused), "safetensors"));
  // This process has no child left.
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}
