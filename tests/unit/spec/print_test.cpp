#include "spec/print.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/files.hpp"
#include "base/random.hpp"
#include "spec/keys.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

namespace {

vime::devices::Inventory one_gpu() {
  return {{{0, "00000000-1111-2222-3333-444444444444", "a GPU", uint64_t{80} << 30, 9, 0}}, ""};
}

void check_round_trip(const ExperimentSpec& spec, const FindGpus& find_gpus = {}) {
  const std::string text = to_yaml(spec);
  CAPTURE(text);
  const ExperimentSpec again = parse(text, "resolved.yaml", {}, find_gpus);
  CHECK(again == spec);
  CHECK(to_yaml(again) == text);
}

}  // namespace

TEST_CASE("a resolved spec reads back to the same struct") {
  check_round_trip(sound_with({}));
  check_round_trip(
      sound_with({"name=\"123\"", "seed=9007199254740991", "trainer.lr=0.1", "trainer.adam_eps=1.2345678901234567e-300",
                  "algorithm.eps_clip_c=3", "rollout.rollout_stop_token_ids=[1, 2]", "weight_sync.timeout=1500ms",
                  "weight_sync.update_weight_buffer_size=1000001", "checkpoint.save_interval=5"}));
  check_round_trip(sound_with(
      {"rollout.n_samples_per_prompt=1", "algorithm.rewards_normalization=false", "trainer.num_steps_per_rollout=2"}));
  check_round_trip(sound_with(
      {"placement.colocate=false", "placement.rollout_num_gpus=4", "placement.rollout_num_gpus_per_engine=2"}));
}

TEST_CASE("lists of texts and of sections read back") {
  check_round_trip(sound_with({"data.prompt_data=[builtin:sort_digits, builtin:sort_digits]"}));
  check_round_trip(sound_with({"eval.eval_interval=1", "eval.prompt_data=builtin:sort_digits"}));
  check_round_trip(sound_with(
      {"eval.temperature=0.5", "eval.num_samples=null",
       "eval.datasets=[{name: a, prompt_data: builtin:sort_digits, n_samples_per_eval_prompt: 3, top_p: 0.9}, "
       "{name: \"1.5\", prompt_data: builtin:sort_digits/heldout, num_samples: 7, max_response_len: 2, "
       "temperature: 1, top_k: 5, reward: position_match}]"}));
}

TEST_CASE("numbers read back bit for bit") {
  for (uint64_t i = 0; i < 500; ++i) {
    ExperimentSpec spec = sound_with({});
    spec.trainer.lr = vime::uniform01(i) * (i % 2 == 0 ? 1.0 : 1e-9);
    CHECK(parse(to_yaml(spec), "r.yaml").trainer.lr == spec.trainer.lr);
  }
}

TEST_CASE("model paths with any characters read back") {
  const vime::TempDir folder;
  for (const std::string name : {"plain", "with space", "colon: here", "quote\"s", "b\\ack", "#hash",
                                 "ends:", "h\xc3\xa4usser", "- dash", "{x}"}) {
    const vime::fs::path path = folder.path() / name;
    ExperimentSpec spec;
    spec.model.path = path.string();
    const std::string text = to_yaml(spec);
    // The folder does not exist, and the refusal names it as it was read.
    CAPTURE(text);
    CHECK(contains(refusal(text), "there is no folder"));
    vime::make_directories(path);
    CHECK(contains(refusal(text), "has no config.json"));
  }
}

TEST_CASE("every shipped config loads and reads back from its resolved form") {
  // Their files are named from the project's folder, and one begins with the model that another leaves.
  const vime::fs::path here = vime::fs::current_path();
  vime::fs::current_path(VIME_SOURCE_DIR);
  int configs = 0;
  for (const auto& entry : vime::fs::directory_iterator(VIME_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path().string());
    const bool goes_on = entry.path().filename() == "word_problems.yaml";
    if (goes_on) CHECK_THROWS_WITH(load(entry.path()), doctest::Contains("there is no folder"));
    const std::vector<std::string> overrides =
        goes_on ? std::vector<std::string>{"model.path=null", "model.preset=tiny"} : std::vector<std::string>{};
    check_round_trip(load(entry.path(), overrides, one_gpu), one_gpu);
    ++configs;
  }
  vime::fs::current_path(here);
  CHECK(configs >= 5);
}

TEST_CASE("the quickstart is the job that the documentation describes") {
  const ExperimentSpec spec = load(VIME_SOURCE_DIR "/configs/quickstart.yaml");
  CHECK(spec.ci_test);
  CHECK(spec.placement.rollout_num_gpus_per_engine == 2);
  CHECK(spec.trainer.global_batch_size == 512);
  CHECK(spec.trainer.lr == 2e-3);
  CHECK(spec.rollout.num_rollout == 200);
  // The disaggregated config is the same job but for its name and placement.
  ExperimentSpec other = load(VIME_SOURCE_DIR "/configs/disaggregated.yaml");
  CHECK_FALSE(other.placement.colocate);
  CHECK(other.placement.nodes == std::vector<int64_t>{4});
  other.placement = spec.placement;
  other.name = spec.name;
  CHECK(other == spec);
}

TEST_CASE("no two keys share a field or a path, and every key has a meaning") {
  ExperimentSpec spec = blank_spec();
  std::set<const void*> fields;
  std::set<std::string> paths;
  size_t keys = 0;
  std::vector<Section> all = sections();
  for (size_t i = 0; i < all.size(); ++i) {
    const Section section = all[i];
    for (const Key& key : section.keys) {
      paths.insert(key_path(section, key));
      CHECK(key.doc.size() > 5);
      CHECK(key.doc.find('\n') == std::string::npos);
      ++keys;
      if (key.sections) {
        all.push_back(key.sections->entry());
        CHECK(all.back().name == key_path(section, key));
        fields.insert(reinterpret_cast<const void*>(key.sections->entry));
        continue;
      }
      const Field field = key.field(spec, 0);
      fields.insert(std::visit([](auto* value) -> const void* { return value; }, field));
      if (key.inherits.empty()) continue;
      const Section* around = find_section(section.name.substr(0, section.name.rfind('.')));
      REQUIRE(around != nullptr);
      REQUIRE(find_key(*around, key.inherits) != nullptr);
      CHECK(find_key(*around, key.inherits)->field(spec, 0).index() == field.index());
    }
  }
  CHECK(fields.size() == keys);
  CHECK(paths.size() == keys);
}

// VIME_UPDATE_DOCS=1 writes the file instead.
TEST_CASE("docs/spec.md is what the table prints") {
  const vime::fs::path file = VIME_SOURCE_DIR "/docs/spec.md";
  if (std::getenv("VIME_UPDATE_DOCS") != nullptr) vime::write_file_atomic(file, reference_markdown());
  CHECK(vime::read_file(file) == reference_markdown());
}
