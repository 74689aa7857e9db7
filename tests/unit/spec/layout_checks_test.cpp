#include "base/files.hpp"
#include "base/strings.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

namespace {

const char* const kTp = "trainer.tensor_model_parallel_size=";
const char* const kPp = "trainer.pipeline_model_parallel_size=";
const char* const kCp = "trainer.context_parallel_size=";

// The preset has 2 layers, 8 attention heads, 4 key/value heads and an intermediate size of 128.
std::vector<std::string> ranks(int count, const std::vector<std::string>& more) {
  std::vector<std::string> all{"placement.actor_num_gpus_per_node=" + std::to_string(count),
                               "rollout.rollout_batch_size=" + std::to_string(4 * count)};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> layout(int tp, int pp, int cp) {
  return {kTp + std::to_string(tp), kPp + std::to_string(pp), kCp + std::to_string(cp)};
}

}  // namespace

TEST_CASE("a layout is accepted exactly when its product divides the ranks and the model can be cut so") {
  for (const int count : {1, 4, 6, 8, 16}) {
    for (int tp = 1; tp <= 9; ++tp) {
      for (int pp = 1; pp <= 4; ++pp) {
        for (int cp = 1; cp <= 4; ++cp) {
          const bool legal = count % (tp * pp * cp) == 0 && (tp == 1 || tp == 2 || tp == 4 || tp == 8) && pp <= 2;
          const std::string message = refusal_with(ranks(count, layout(tp, pp, cp)));
          CAPTURE(count);
          CAPTURE(message);
          CHECK(message.empty() == legal);
        }
      }
    }
  }
}

TEST_CASE("what the model cannot be cut into is refused at its key, with the sizes that suit model and ranks") {
  CHECK(refusal_with(ranks(6, {std::string(kTp) + "3"})) ==
        "--set trainer.tensor_model_parallel_size=3: \"trainer.tensor_model_parallel_size\" is 3, but 8 attention "
        "heads cannot be cut over 3 tensor-parallel ranks; possible with PP 1 and CP 1 on 6 ranks: 1 or 2");
  CHECK(refusal_with(ranks(8, {std::string(kPp) + "4"})) ==
        "--set trainer.pipeline_model_parallel_size=4: \"trainer.pipeline_model_parallel_size\" is 4, but 2 layers "
        "cannot be cut into 4 pipeline stages; possible with TP 1 and CP 1 on 8 ranks: 1 or 2");
  // Both are wrong at once, and each is reported.
  const std::string both = refusal_with(ranks(6, layout(3, 4, 1)));
  CHECK(contains(both, "2 errors in the spec:\n"));
  CHECK(contains(both, "no size is possible with PP 4 and CP 1 on 6 ranks"));
  CHECK(contains(both, "possible with TP 3 and CP 1 on 6 ranks: 1 or 2"));
}

TEST_CASE("a product that does not divide the ranks is refused with what each size could be") {
  CHECK(refusal_with(ranks(8, {std::string(kCp) + "3"})) ==
        "--set trainer.context_parallel_size=3: TP 1 x PP 1 x CP 3 = 3 does not divide the trainer's 8 ranks; "
        "possible, with the other two as they are: context_parallel_size 1, 2, 4 or 8");
  CHECK(refusal_with(ranks(6, layout(2, 2, 1))) ==
        "--set trainer.tensor_model_parallel_size=2: TP 2 x PP 2 x CP 1 = 4 does not divide the trainer's 6 ranks; "
        "possible, with the other two as they are: tensor_model_parallel_size 1; pipeline_model_parallel_size 1");
  CHECK(contains(refusal_with(ranks(8, layout(1, 1, 16))), "context_parallel_size 1, 2, 4 or 8"));
  CHECK(contains(refusal_with(ranks(10, layout(4, 1, 3))),
                 "= 12 does not divide the trainer's 10 ranks; no change of one of them alone helps, the product can "
                 "be 1, 2, 5 or 10"));
}

TEST_CASE("every size that a refusal offers is accepted") {
  int tried = 0;
  for (const int count : {4, 6, 8, 12}) {
    for (int tp = 1; tp <= 4; ++tp) {
      for (int cp = 1; cp <= 6; ++cp) {
        const std::string message = refusal_with(ranks(count, layout(tp, 1, cp)));
        for (const std::string key :
             {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"}) {
          const size_t at = message.find("as they are: ");
          const size_t offer = at == std::string::npos ? at : message.find(key + " ", at);
          if (offer == std::string::npos) continue;
          std::vector<std::string> cured = ranks(count, layout(tp, 1, cp));
          cured.push_back("trainer." + key + "=" + std::to_string(std::stoi(message.substr(offer + key.size() + 1))));
          CAPTURE(message);
          CHECK(refusal_with(cured).empty());
          ++tried;
        }
      }
    }
  }
  CHECK(tried > 20);
}

TEST_CASE("the model of a folder is held against the layout like a preset, at the line of the key") {
  const std::string path = (vime::fs::path(VIME_TEST_DATA) / "models" / "llama").string();  // 4 heads, 2 key/value
  const std::string text =
      vime::join({"model: {path: " + path + ", tokenizer: char}", "data: {prompt_data: builtin:sort_digits}",
                  "reward: {type: position_match}", "placement: {colocate: true, actor_num_gpus_per_node: 8}",
                  "rollout: {num_rollout: 3, rollout_batch_size: 8, rollout_max_response_len: 4,",
                  "          n_samples_per_prompt: 2}", "trainer:", "  tensor_model_parallel_size: 8", ""},
                 "\n");
  CHECK(refusal(text) ==
        "s.yaml:8:31: \"trainer.tensor_model_parallel_size\" is 8, but 4 attention heads cannot be cut over 8 "
        "tensor-parallel ranks; possible with PP 1 and CP 1 on 8 ranks: 1, 2 or 4");
  CHECK(refusal(text, {std::string(kTp) + "4"}).empty());
}

TEST_CASE("an engine is tensor-parallel over its devices, so its size obeys the same rule") {
  CHECK(contains(refusal_with(ranks(6, {"placement.rollout_num_gpus_per_engine=3"})),
                 "an engine of 3 devices cannot hold the model: 8 attention heads cannot be cut over 3 tensor-parallel "
                 "ranks; possible with rollout_num_gpus 6: 1 or 2"));
  CHECK(refusal_with(ranks(8, {"placement.rollout_num_gpus_per_engine=8"})).empty());
}

TEST_CASE("a step is shared by the data-parallel ranks of the layout, not by all") {
  const std::vector<std::string> batch{"rollout.rollout_batch_size=3", "rollout.n_samples_per_prompt=2"};
  auto with = [&batch](std::vector<std::string> more) {
    more.insert(more.end(), batch.begin(), batch.end());
    return ranks(8, more);
  };
  CHECK(contains(refusal_with(with({})), "cannot be shared equally by 8 data-parallel ranks"));
  CHECK(contains(refusal_with(with({std::string(kTp) + "2"})), "cannot be shared equally by 4 data-parallel ranks"));
  CHECK(refusal_with(with(layout(2, 2, 1))).empty());
  CHECK(refusal_with(with(layout(1, 1, 4))).empty());
}

TEST_CASE("the moments' keys are refused where there are no moments") {
  CHECK(refusal_with({"trainer.optimizer=sgd", "trainer.weight_decay=0.1"}).empty());
  CHECK(contains(refusal_with({"trainer.optimizer=sgd", "trainer.adam_beta2=0.95"}),
                 "--set trainer.adam_beta2=0.95: \"trainer.adam_beta2\" has no effect: optimizer is sgd; choose adam"));
  // Resolved specs give every key.
  CHECK(refusal_with({"trainer.optimizer=sgd", "trainer.adam_beta1=0.9"}).empty());
  CHECK(contains(refusal_with({"trainer.optimizer=muon"}), "adam"));
}
