// Sources of prompts as the spec names them. What the lines of a file hold is tested with lib/data.
#include "base/files.hpp"
#include "spec/print.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

namespace {

// A folder with a prompt file.
struct Folder {
  Folder() { vime::write_file_atomic(file(), "{}\n"); }
  std::string file() const { return (dir.path() / "a.jsonl").string(); }
  vime::TempDir dir;
};

}  // namespace

TEST_CASE("prompt files, slices and built-in sets can be mixed") {
  const Folder folder;
  const std::string sliced = folder.file() + "@[-5:]";
  const ExperimentSpec spec = sound_with({"data.prompt_data=['" + sliced + "', builtin:sort_digits]"});
  CHECK(spec.data.prompt_data == std::vector<std::string>{sliced, "builtin:sort_digits"});
  CHECK(sound_with({"data.prompt_data=" + sliced}).data.prompt_data == std::vector<std::string>{sliced});
  CHECK(parse(to_yaml(spec), "resolved.yaml") == spec);
}

TEST_CASE("a relative path becomes an absolute one, seen from the current folder") {
  const std::string here = vime::fs::current_path().string();
  const vime::fs::path name = "vime_data_test.jsonl";
  vime::write_file_atomic(name, "{}\n");
  const ExperimentSpec spec =
      sound_with({"data.prompt_data=./vime_data_test.jsonl@[0:1]", "eval.prompt_data=vime_data_test.jsonl"});
  vime::fs::remove(name);
  CHECK(spec.data.prompt_data == std::vector<std::string>{here + "/vime_data_test.jsonl@[0:1]"});
  REQUIRE(spec.eval.datasets.size() == 1);
  CHECK(spec.eval.datasets[0].prompt_data == here + "/vime_data_test.jsonl");
  CHECK(spec.eval.datasets[0].name == "vime_data_test");
}

TEST_CASE("a data set is named after its file, without slice and endings") {
  const Folder folder;
  for (const auto& [file, name] : {std::pair<std::string, std::string>{"gsm8k.test.jsonl.gz", "gsm8k.test"},
                                   {"a b(1).json", "a_b_1_"},
                                   {"plain", "plain"}}) {
    const std::string path = (folder.dir.path() / file).string();
    vime::write_file_atomic(path, "{}\n");
    CHECK(sound_with({"eval.prompt_data=\"" + path + "@[:1]\""}).eval.datasets.at(0).name == name);
  }
}

TEST_CASE("a source that is none is refused where it was written") {
  const Folder folder;
  const std::string missing = (folder.dir.path() / "none.jsonl").string();
  std::string text = kSound;
  text.replace(text.find("builtin:sort_digits"), 19, missing);
  CHECK(refusal(text) == "s.yaml:2:21: \"data.prompt_data\": " + missing + ": there is no such file");
  const auto with = [](const std::string& source) { return refusal_with({"data.prompt_data=" + source}); };
  CHECK(contains(with(folder.dir.path().string()), ": is a folder; expected a JSONL file"));
  CHECK(contains(with("builtin:sort_digit"), "did you mean \"builtin:sort_digits\"?"));
  CHECK(contains(with(folder.file() + "@[1:2:3]"), "expected a slice of lines such as @[0:100]"));
  vime::write_file_atomic(folder.file(), "");
  CHECK(contains(with(folder.file()), "the file is empty; expected one JSON object per line"));
  CHECK(contains(refusal_with({"eval.prompt_data=" + missing}),
                 "--set eval.prompt_data=" + missing + ": \"eval.prompt_data\": " + missing));
  CHECK(contains(refusal(kSound + "eval:\n  datasets:\n    - {name: a, prompt_data: builtin:sort_digits}\n    - name: "
                                  "b\n      prompt_data: builtin:x\n"),
                 "s.yaml:10:20: \"eval.datasets[1].prompt_data\": expected one of builtin:sort_digits"));
}

TEST_CASE("a slice that breaks a list of sources is answered with the quotes it needs") {
  CHECK(contains(refusal_with({"data.prompt_data=[a.jsonl@[0:1], b.jsonl]"}), "must be quoted inside [] and {}"));
  CHECK_FALSE(contains(refusal_with({"data.prompt_data=[a.jsonl"}), "must be quoted"));
}

TEST_CASE("several wrong sources are all named") {
  const std::string message = refusal_with({"data.prompt_data=[/no/a.jsonl, /no/b.jsonl]"});
  CHECK(contains(message, "/no/a.jsonl: there is no such file"));
  CHECK(contains(message, "/no/b.jsonl: there is no such file"));
}

TEST_CASE("keys of the lines have defaults, can be named, and may not be the same") {
  const Data data = sound_with({}).data;
  CHECK(data.input_key == "prompt");
  CHECK(data.label_key == "label");
  CHECK(data.metadata_key == "metadata");
  CHECK(data.reward_key == "reward_type");
  CHECK_FALSE(data.apply_chat_template);
  CHECK(data.max_bad_lines == 0);
  CHECK(data.max_line_bytes.count == 16u << 20);
  CHECK_FALSE(sound_with({"data.label_key=null", "reward.type=regex", "reward.pattern=x"}).data.label_key.has_value());
  CHECK(contains(refusal_with({"data.label_key=null"}), "but the reward position_match compares with labels"));
  CHECK(sound_with({"data.input_key=input", "data.max_bad_lines=3"}).data.input_key == "input");
  CHECK(contains(refusal_with({"data.label_key=prompt"}),
                 "\"data.label_key\" is \"prompt\", which another key of \"data\" names already"));
  CHECK(contains(refusal_with({"data.reward_key=metadata"}), "\"data.reward_key\" is \"metadata\""));
  CHECK(contains(refusal_with({"data.max_bad_lines=-1"}), "must be an integer from 0"));
  CHECK(contains(refusal_with({"data.max_line_bytes=1"}), "must be a size such as 512MiB from 16B to 1GiB"));
  CHECK(contains(refusal_with({"data.prompt_key=x"}), "(vime calls it \"input_key\")"));
}
