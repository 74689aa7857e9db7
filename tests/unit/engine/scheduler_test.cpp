#include "engine/scheduler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "fake_executor.hpp"

using namespace vime;
using namespace vime::engine;

namespace {

struct Run {
  FakeExecutor fake;
  std::unique_ptr<Scheduler> scheduler;
  std::map<std::string, GenerationResult> results;

  Scheduler& started(std::vector<int32_t> eos = {}) {
    scheduler = std::make_unique<Scheduler>(SchedulerLimits{fake.slots, fake.rows, fake.model_len}, std::move(eos), 7);
    return *scheduler;
  }
  uint64_t add(const std::string& id, std::vector<int32_t> prompt, Sampling sampling) {
    Generation generation;
    generation.id = id;
    generation.prompt = std::move(prompt);
    generation.sampling = sampling;
    generation.done = [this, id](GenerationResult result) {
      REQUIRE(results.count(id) == 0);
      results[id] = std::move(result);
    };
    return scheduler->add(std::move(generation));
  }
  bool step() {
    const Batch batch = scheduler->next_batch(true);
    if (batch.rows.empty()) return false;
    scheduler->accept(fake.step(batch), "1");
    return true;
  }
  void finish() {
    for (int i = 0; i < 100000 && step(); ++i) {
    }
  }
};

Sampling sampling(int64_t max_tokens, uint64_t seed) {
  Sampling value;
  value.max_tokens = max_tokens;
  value.seed = seed;
  return value;
}

}  // namespace

TEST_CASE("a thousand requests on four slots all get the tokens that each gets alone") {
  Run run;
  run.started();
  std::map<std::string, std::vector<int32_t>> expected;
  for (int i = 0; i < 1000; ++i) {
    std::vector<int32_t> prompt;
    for (int k = 0; k <= i % 40; ++k) prompt.push_back((i * 7 + k) % 50);
    const auto seed = static_cast<uint64_t>(i);
    const std::string id = std::to_string(i);
    expected[id] = run.fake.expected(prompt, seed, 1 + i % 9);
    run.add(id, prompt, sampling(1 + i % 9, seed));
  }
  CHECK(run.scheduler->counts().waiting == 1000);
  run.finish();
  REQUIRE(run.results.size() == 1000);
  for (const auto& [id, result] : run.results) {
    REQUIRE(result.choices.size() == 1);
    CHECK(result.choices[0].token_ids == expected[id]);
    CHECK(result.choices[0].reason == FinishReason::length);
    CHECK(result.choices[0].logprobs.at(0) == FakeExecutor::logprob_of(expected[id][0]));
  }
  CHECK(run.fake.most_rows == static_cast<std::size_t>(run.fake.rows));
  CHECK(run.scheduler->counts().requests == 0);
}

TEST_CASE("a prompt longer than a step is prefilled over several steps while others decode") {
  Run run;
  run.fake.rows = 5;
  run.started();
  run.add("short", {1}, sampling(10, 1));
  run.step();
  std::vector<int32_t> prompt(23, 4);
  run.add("long", prompt, sampling(2, 2));
  for (int i = 0; i < 5; ++i) run.step();
  // 4 rows a step are left beside the decoding sequence: 4 x 5 < 23.
  CHECK(run.results.empty());
  run.step();
  run.step();
  CHECK(run.results.count("long") == 1);
  run.finish();
  CHECK(run.results["long"].choices[0].token_ids == run.fake.expected(prompt, 2, 2));
  CHECK(run.results["short"].choices[0].token_ids == run.fake.expected({1}, 1, 10));
}

TEST_CASE("samples of one prompt draw with seed, seed + 1, ...") {
  Run run;
  run.started();
  Sampling three = sampling(6, 40);
  three.n = 3;
  run.add("x", {5, 6}, three);
  run.finish();
  const auto& choices = run.results.at("x").choices;
  REQUIRE(choices.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(choices[i].token_ids == run.fake.expected({5, 6}, 40 + i, 6));
  CHECK(choices[0].token_ids != choices[1].token_ids);
}

TEST_CASE("eos and stop ids end a sequence, ignore_eos passes eos over and min_tokens puts both off") {
  Run run;
  const std::vector<int32_t> all = run.fake.expected({9}, 3, 12);
  const int32_t third = all[2];
  REQUIRE(std::count(all.begin(), all.begin() + 2, third) == 0);
  run.started({third});
  run.add("eos", {9}, sampling(12, 3));
  Sampling ignoring = sampling(12, 3);
  ignoring.ignore_eos = true;
  run.add("ignored", {9}, ignoring);
  Sampling stopping = ignoring;
  stopping.stop_token_ids = {all[1]};
  run.add("stopped", {9}, stopping);
  Sampling late = sampling(12, 3);
  late.min_tokens = 3;
  run.add("late", {9}, late);
  run.finish();

  CHECK(run.results["eos"].choices[0].token_ids == std::vector<int32_t>(all.begin(), all.begin() + 3));
  CHECK(run.results["eos"].choices[0].reason == FinishReason::stop);
  CHECK_FALSE(run.results["eos"].choices[0].stop_token.has_value());
  CHECK(run.results["ignored"].choices[0].token_ids == all);
  CHECK(run.results["ignored"].choices[0].reason == FinishReason::length);
  CHECK(run.results["stopped"].choices[0].token_ids == std::vector<int32_t>(all.begin(), all.begin() + 2));
  CHECK(run.results["stopped"].choices[0].stop_token == all[1]);
  const Choice& later = run.results["late"].choices[0];
  CHECK(later.token_ids.size() >= 3);
  CHECK(later.token_ids[2] != third);
}

TEST_CASE("a sequence ends with reason length where the model's context ends") {
  Run run;
  run.started();
  run.add("full", std::vector<int32_t>(63, 2), sampling(1000, 1));
  run.add("some", std::vector<int32_t>(60, 2), sampling(1000, 1));
  run.finish();
  CHECK(run.results["full"].choices[0].token_ids.size() == 1);
  CHECK(run.results["some"].choices[0].token_ids.size() == 4);
  CHECK(run.results["some"].choices[0].reason == FinishReason::length);
}

TEST_CASE("abort ends running and waiting sequences with the tokens so far, by number, id and call id") {
  Run run;
  run.fake.slots = 2;
  run.started();
  const uint64_t first = run.add("cmpl-a-0", {1}, sampling(50, 1));
  run.add("cmpl-a-1", {2}, sampling(50, 2));
  run.add("cmpl-ab-0", {3}, sampling(50, 3));
  run.add("cmpl-c-0", {4}, sampling(50, 4));
  run.step();
  run.step();
  CHECK(run.scheduler->abort({first}) == 1);
  CHECK(run.results["cmpl-a-0"].choices[0].token_ids == run.fake.expected({1}, 1, 2));
  CHECK(run.results["cmpl-a-0"].choices[0].reason == FinishReason::abort);
  CHECK(run.scheduler->abort_ids({"cmpl-a"}) == 1);
  CHECK(run.results.count("cmpl-a-1") == 1);
  CHECK(run.results.count("cmpl-ab-0") == 0);
  CHECK(run.scheduler->abort_ids({"nobody"}) == 0);
  CHECK(run.scheduler->abort_ids({"cmpl-c-0"}) == 1);
  CHECK(run.results["cmpl-c-0"].choices[0].token_ids.empty());
  CHECK(run.results["cmpl-c-0"].choices[0].versions.empty());
  run.finish();
  CHECK(run.results["cmpl-ab-0"].choices[0].token_ids == run.fake.expected({3}, 3, 50));
  CHECK(run.scheduler->abort_all() == 0);
}

TEST_CASE("preempted sequences are computed anew and go on with the same tokens, marked with the newer version") {
  Run run;
  run.fake.slots = 2;
  run.started();
  run.add("x", {1, 2, 3}, sampling(8, 5));
  run.add("y", {4}, sampling(8, 6));
  run.add("z", {5}, sampling(8, 7));
  for (int i = 0; i < 3; ++i) run.step();
  run.scheduler->preempt_running();
  CHECK(run.scheduler->counts().running == 0);
  CHECK(run.scheduler->next_batch(false).rows.empty());
  bool first = true;
  while (true) {
    const Batch batch = run.scheduler->next_batch(true);
    if (batch.rows.empty()) break;
    // Prompt and response of both: 3 + 3 and 1 + 3 tokens.
    if (std::exchange(first, false)) CHECK(batch.rows.size() == 10);
    run.scheduler->accept(run.fake.step(batch), "2");
  }
  CHECK(run.results["x"].choices[0].token_ids == run.fake.expected({1, 2, 3}, 5, 8));
  CHECK(run.results["z"].choices[0].token_ids == run.fake.expected({5}, 7, 8));
  const auto& spans = run.results["x"].choices[0].versions;
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].version == "1");
  CHECK(spans[0].start == 0);
  CHECK(spans[0].end == 3);
  CHECK(spans[1].version == "2");
  CHECK(spans[1].start == 3);
  CHECK(spans[1].end == 8);
}

TEST_CASE("a failure ends every generation with its text") {
  Run run;
  run.fake.slots = 1;
  run.started();
  run.add("x", {1}, sampling(8, 5));
  run.add("y", {4}, sampling(8, 6));
  run.step();
  run.scheduler->fail_all("worker 0 exited with status 1");
  CHECK(run.results["x"].error == "worker 0 exited with status 1");
  CHECK(run.results["y"].error == "worker 0 exited with status 1");
  run.add("z", {5}, sampling(3, 7));
  run.finish();
  CHECK(run.results["z"].choices[0].token_ids == run.fake.expected({5}, 7, 3));
}

TEST_CASE("prompt log-probs of a thousand prompts are those of each alone, whatever the cut into steps") {
  Run run;
  run.fake.rows = 5;
  run.started();
  std::map<std::string, std::vector<int32_t>> prompts;
  for (int i = 0; i < 1000; ++i) {
    std::vector<int32_t> prompt;
    for (int k = 0; k <= i % 40; ++k) prompt.push_back((i * 7 + k) % 50);
    Sampling asked = sampling(1 + i % 3, static_cast<uint64_t>(i));
    if (i % 4 != 0) asked.prompt_logprobs = i % 2;
    if (i % 5 == 0) asked.n = 3;
    run.add(std::to_string(i), prompt, asked);
    prompts[std::to_string(i)] = prompt;
  }
  run.finish();
  REQUIRE(run.results.size() == 1000);
  for (int i = 0; i < 1000; ++i) {
    const std::vector<int32_t>& prompt = prompts[std::to_string(i)];
    const GenerationResult& result = run.results[std::to_string(i)];
    const bool wanted = i % 4 != 0;
    CHECK(result.prompt_logprobs ==
          (wanted ? run.fake.expected_prompt_logprobs(prompt) : std::vector<PromptLogprob>{}));
    // What is drawn does not depend on what is looked up.
    CHECK(result.choices[0].token_ids == run.fake.expected(prompt, static_cast<uint64_t>(i), 1 + i % 3));
  }
}

TEST_CASE("a preempted prompt's log-probs begin again, complete ones stay") {
  Run run;
  run.fake.rows = 4;
  run.started();
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  Sampling asked = sampling(8, 2);
  asked.prompt_logprobs = 0;
  run.add("x", prompt, asked);
  run.step();
  run.scheduler->preempt_running();  // after 4 of 9 rows
  Batch batch = run.scheduler->next_batch(true);
  CHECK(std::count_if(batch.samples.begin(), batch.samples.end(), [](const SampleSpec& s) { return s.forced >= 0; }) ==
        4);
  run.scheduler->accept(run.fake.step(batch), "1");
  for (int i = 0; i < 4; ++i) run.step();
  run.scheduler->preempt_running();  // the prompt is through and tokens have been drawn
  for (batch = run.scheduler->next_batch(true); !batch.rows.empty(); batch = run.scheduler->next_batch(true)) {
    for (const SampleSpec& spec : batch.samples) CHECK(spec.forced == -1);
    run.scheduler->accept(run.fake.step(batch), "2");
  }
  CHECK(run.results["x"].prompt_logprobs == run.fake.expected_prompt_logprobs(prompt));
  CHECK(run.results["x"].choices[0].token_ids == run.fake.expected(prompt, 2, 8));
}

TEST_CASE("an aborted prompt gives the log-probs so far") {
  Run run;
  run.fake.rows = 4;
  run.started();
  Sampling asked = sampling(8, 2);
  asked.prompt_logprobs = 0;
  run.add("x", std::vector<int32_t>(9, 7), asked);
  run.step();
  run.scheduler->abort_all();
  CHECK(run.results["x"].prompt_logprobs.size() == 4);
}
