// Worker processes on GPUs, as `vime engine` starts them. A process that has looked at a GPU cannot fork workers, so
// each engine runs in a process of its own.
#include "torch_doctest.hpp"

#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "gpu/device.hpp"
#include "gpu/roles.hpp"
#include "unit/executor/reference.hpp"

using namespace vime;
using namespace vime::executor;

namespace {

// Greedy answers to the reference's prompts as text.
std::string greedy_answers(engine::Executor& executor, const std::string& name) {
  const torch::Tensor prompts = reference_tensor(name, "prompt").to(torch::kInt32);
  const int64_t tokens = reference_tensor(name, "greedy").size(1);
  std::vector<Asked> asked;
  std::vector<std::size_t> order;
  for (int64_t i = 0; i < prompts.size(0); ++i) {
    Asked one;
    one.prompt.assign(prompts[i].data_ptr<int32_t>(), prompts[i].data_ptr<int32_t>() + prompts.size(1));
    one.sampling.temperature = 0;
    one.sampling.max_tokens = tokens;
    asked.push_back(one);
    order.push_back(static_cast<std::size_t>(i));
  }
  std::string text;
  for (const engine::Choice& choice : generate(executor, asked, order)) {
    for (const int32_t id : choice.token_ids) text += std::to_string(id) + " ";
  }
  return text;
}

std::string expected_answers(const std::string& name) {
  const torch::Tensor greedy = reference_tensor(name, "greedy").to(torch::kInt32).contiguous();
  std::string text;
  for (int64_t i = 0; i < greedy.numel(); ++i) text += std::to_string(greedy.data_ptr<int32_t>()[i]) + " ";
  return text;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void wait_for_word() {
  int c = 0;
  while ((c = std::getchar()) != '\n' && c != EOF) {
  }
}

ExecutorOptions options_on(const std::vector<std::string>& arguments) {
  ExecutorOptions options = options_for(arguments.at(0), 0);
  options.device = "cuda";
  options.device_uuids.assign(arguments.begin() + 1, arguments.end());
  return options;
}

// model, UUIDs: answers and ends.
const test::Role answers("answers", [](const std::vector<std::string>& arguments) {
  try {
    const auto executor = start_workers(options_on(arguments));
    say(greedy_answers(*executor, arguments.at(0)));
    return 0;
  } catch (const Error& error) {
    say(error.what());
    return 4;
  }
});

// model, UUID: a large KV cache; sleeps and wakes at a word.
const test::Role sleeper("sleeper", [](const std::vector<std::string>& arguments) {
  try {
    ExecutorOptions options = options_on(arguments);
    options.max_model_len = 512;
    options.max_num_seqs = 8192;
    const auto executor = start_workers(options);
    say(std::to_string(executor->max_slots()));
    say(greedy_answers(*executor, arguments.at(0)));
    wait_for_word();
    for (const int level : {1, 2}) {
      executor->sleep(level);
      say("asleep");
      wait_for_word();
      executor->wake(true, true);
      if (level == 2) executor->reload(options.model_dir);
      say(greedy_answers(*executor, arguments.at(0)));
    }
    return 0;
  } catch (const Error& error) {
    say(error.what());
    return 4;
  }
});

// model, UUID: more than there is.
const test::Role glutton("glutton", [](const std::vector<std::string>& arguments) {
  try {
    ExecutorOptions options = options_on(arguments);
    options.gpu_memory_utilization = 1e-6;
    start_workers(options);
    return 0;
  } catch (const Error& error) {
    say(error.what());
    return static_cast<int>(error.kind());
  }
});

}  // namespace

TEST_CASE("workers on one and on two GPUs continue prompts as the reference does, for every architecture") {
  for (const std::string& name : reference_names()) {
    for (int workers = 1; workers <= std::min(2, gpu::device_count()); ++workers) {
      CAPTURE(name);
      CAPTURE(workers);
      std::vector<std::string> arguments = {name};
      for (int i = 0; i < workers; ++i) arguments.push_back(gpu::device_uuid(i));
      test::RoleProcess process("answers", arguments);
      CHECK(process.read_line() == expected_answers(name));
      CHECK(process.wait() == 0);
    }
  }
}

TEST_CASE("sleeping workers give KV cache and weights back, and answer as before when they are woken") {
  gpu::select_device(gpu::device_uuid(0));
  gpu::synchronize();
  test::RoleProcess process("sleeper", {"llama", gpu::device_uuid(0)});
  CHECK(process.read_line() == "8192");
  const std::string before = process.read_line();
  CHECK(before == expected_answers("llama"));
  const uint64_t awake = gpu::memory_info().free_bytes;
  for (int level = 1; level <= 2; ++level) {
    process.write_line("sleep");
    CHECK(process.read_line() == "asleep");
    // 2 layers of 2 heads of 16, keys and values in float32.
    const uint64_t cache = uint64_t{8192} * 512 * 2 * 2 * 2 * 16 * 4;
    CHECK(gpu::memory_info().free_bytes >= awake + cache);
    process.write_line("wake");
    CHECK(process.read_line() == before);
  }
  CHECK(process.wait() == 0);
}

TEST_CASE("an engine whose KV cache has no room says how much there is") {
  test::RoleProcess process("glutton", {"llama", gpu::device_uuid(0)});
  CHECK(process.read_line().find("the KV cache of one sequence of 64 tokens takes") != std::string::npos);
  CHECK(process.wait() == static_cast<int>(ErrorKind::exhausted));
}
