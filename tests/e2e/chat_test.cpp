// A run on what the Hub has: tokenizer.json, chat template, chat messages.
#include <doctest/doctest.h>

#include <map>

#include "e2e/run_binary.hpp"
#include "e2e/run_files.hpp"

using namespace vime;
using namespace vime::e2e;

namespace {

Outcome run(const fs::path& run_dir, const std::vector<std::string>& sets, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {vime_binary(), "run", kQuickstart, "--run-dir", run_dir.string()};
  for (const std::string& set : sets) arguments.insert(arguments.end(), {"--set", set});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, milliseconds(300000));
}

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

}  // namespace

TEST_CASE(
    "a model folder with tokenizer.json and a chat template is trained on messages, and its checkpoint is one again") {
  const TempDir folder;
  // A folder as the Hub has them: a tokenizer, a template, and the small model made for it.
  const fs::path tokenizer = folder.path() / "tokenizer";
  make_directories(tokenizer);
  fs::copy_file(VIME_TEST_DATA "/tokenizers/qwen2/tokenizer.json", tokenizer / "tokenizer.json");
  fs::copy_file(VIME_TEST_DATA "/templates/chatml.jinja", tokenizer / "chat_template.jinja");
  write_file_atomic(tokenizer / "tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
  write_file_atomic(folder.path() / "chat.jsonl",
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"Two words, please.\"}], \"answer\": 12}\n"
                    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
                    "\"content\": \"And you?\"}], \"answer\": \"7\", \"reward_type\": \"f1\"}\n");
  const std::vector<std::string> sets = {"data.prompt_data=" + (folder.path() / "chat.jsonl").string(),
                                         "data.input_key=messages",
                                         "data.label_key=answer",
                                         "data.apply_chat_template=true",
                                         "reward.type=numeric",
                                         "rollout.num_rollout=1",
                                         "rollout.rollout_batch_size=2",
                                         "rollout.rollout_max_prompt_len=60",
                                         "trainer.global_batch_size=16",
                                         "engine.max_model_len=null",
                                         "eval.eval_interval=null"};
  const Outcome made = run(folder.path() / "made", with(sets, {"model.tokenizer=" + tokenizer.string()}));
  CAPTURE(made.err);
  REQUIRE(made.status == 0);
  const fs::path model = folder.path() / "made/checkpoints/latest/model";
  write_file_atomic(model / "generation_config.json", "{\"eos_token_id\": [0, 1]}");

  const Outcome outcome =
      run(folder.path() / "run", with(sets, {"model.path=" + model.string(), "model.preset=null"}), {"--ci-test"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.status == 0);
  std::map<std::string, int> prompts;
  for (const Json& sample : read_lines(folder.path() / "run/rollouts/rollout_000000.jsonl")) {
    ++prompts[sample.at("prompt").get<std::string>()];
    CHECK(sample.at("reward").is_number());
  }
  CHECK(prompts ==
        std::map<std::string, int>{
            {"<|im_start|>system\nYou solve tasks.<|im_end|>\n<|im_start|>user\nTwo words, please.<|im_end|>\n"
             "<|im_start|>assistant\n",
             8},
            {"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nAnd you?<|im_end|>\n"
             "<|im_start|>assistant\n",
             8}});
  const fs::path saved = folder.path() / "run/checkpoints/latest/model";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    CAPTURE(name);
    CHECK(read_file(saved / name) == read_file(tokenizer / name));
  }
  CHECK(read_file(saved / "generation_config.json") == "{\"eos_token_id\": [0, 1]}");
  CHECK(read_json(saved / "config.json").at("eos_token_id") == Json({0, 1}));
}
