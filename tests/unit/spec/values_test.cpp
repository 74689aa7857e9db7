#include <algorithm>

#include "spec_text.hpp"

using namespace vime::spec;

namespace {

// The value that --set path=text is refused with, or "".
std::string set(const std::string& path, const std::string& text) {
  return refusal_with({path + "=" + text});
}

}  // namespace

TEST_CASE("booleans are true and false, nothing else") {
  CHECK(sound_with({"data.rollout_shuffle=true"}).data.rollout_shuffle);
  for (const std::string wrong : {"yes", "True", "on", "1", "\"true\"", "[true]", "", "null"}) {
    CAPTURE(wrong);
    CHECK(contains(set("data.rollout_shuffle", wrong), "\"data.rollout_shuffle\" must be true or false, found "));
  }
}

TEST_CASE("integers are decimal digits, nothing else") {
  CHECK(sound_with({"seed=0"}).seed == 0);
  CHECK(sound_with({"seed=+7"}).seed == 7);
  CHECK(sound_with({"seed=9007199254740991"}).seed == 9007199254740991);
  for (const std::string wrong : {"1.5", "1e3", "0x10", "010", "1_000", "ten", "{a: 1}", "9007199254740992", "-1",
                                  "99999999999999999999", "--1", "-"}) {
    CAPTURE(wrong);
    CHECK(contains(set("seed", wrong), "\"seed\" must be an integer from 0 to 9007199254740991, found "));
  }
  CHECK(contains(set("seed", "\"5\""), "found the quoted text \"5\" (leave the quotes out)"));
}

TEST_CASE("numbers may be written as integers or decimals, and must be finite") {
  CHECK(sound_with({"trainer.lr=2.0e-3"}).trainer.lr == 0.002);
  CHECK(sound_with({"trainer.lr=1"}).trainer.lr == 1.0);
  CHECK(sound_with({"trainer.lr=.5"}).trainer.lr == 0.5);
  for (const std::string wrong :
       {"fast", ".inf", ".nan", "nan", "inf", "1e999", "1e", "-0.1", "\"1\"", "0x1p3", "1,5", "1 2"}) {
    CAPTURE(wrong);
    CHECK(contains(set("trainer.lr", wrong), "\"trainer.lr\" must be a number of at least 0, found "));
  }
  CHECK(contains(set("trainer.adam_beta1", "1"), "must be a number from 0 to below 1, found \"1\"") == false);
  CHECK(contains(set("trainer.adam_beta1", "1"), "must be a number from 0 to below 1, found 1"));
  CHECK(contains(set("rollout.rollout_temperature", "0"), "must be a number above 0, found 0"));
}

TEST_CASE("sizes carry binary units and durations any unit of time") {
  CHECK(sound_with({"weight_sync.update_weight_buffer_size=512MiB"}).weight_sync.update_weight_buffer_size.count ==
        536870912);
  CHECK(sound_with({"weight_sync.update_weight_buffer_size=536870912"}).weight_sync.update_weight_buffer_size.count ==
        536870912);
  CHECK(sound_with({"weight_sync.update_weight_buffer_size=3KiB"}).weight_sync.update_weight_buffer_size.count == 3072);
  for (const std::string wrong : {"512MB", "1.5GiB", "-1MiB", "MiB", "0", "2TiB", "99999999999TiB", "512 MiB"}) {
    CAPTURE(wrong);
    CHECK(contains(set("weight_sync.update_weight_buffer_size", wrong),
                   "must be a size such as 512MiB from 1B to 1TiB, found "));
  }
  using std::chrono::milliseconds;
  CHECK(sound_with({"weight_sync.timeout=900s"}).weight_sync.timeout == milliseconds(900000));
  CHECK(sound_with({"weight_sync.timeout=5m"}).weight_sync.timeout == milliseconds(300000));
  CHECK(sound_with({"weight_sync.timeout=250ms"}).weight_sync.timeout == milliseconds(250));
  CHECK(sound_with({"weight_sync.timeout=2h"}).weight_sync.timeout == milliseconds(7200000));
  for (const std::string wrong : {"900", "5min", "1.5s", "-1s", "0s", "1000h"}) {
    CAPTURE(wrong);
    CHECK(contains(set("weight_sync.timeout", wrong), "must be a duration such as 900s from 1ms to 168h, found "));
  }
}

TEST_CASE("text that YAML would read as another type must be quoted") {
  CHECK(sound_with({"name=run-1.a"}).name == "run-1.a");
  CHECK(sound_with({"name=\"123\""}).name == "123");
  for (const std::string wrong : {"123", "1.5", "true", "no"}) {
    CAPTURE(wrong);
    CHECK(contains(set("name", wrong), "put it in quotes"));
  }
  CHECK(contains(set("name", "\"a b\""), "at most 64 letters"));
  CHECK(contains(set("name", "../x"), "at most 64 letters"));
  CHECK(contains(set("name", std::string(65, 'x')), "at most 64 letters"));
}

TEST_CASE("a choice names all its values and the nearest") {
  const std::string message = set("algorithm.advantage_estimator", "grop");
  CHECK(contains(message, "must be one of grpo, gspo, cispo, found \"grop\" (did you mean \"grpo\"?)"));
  CHECK(contains(set("placement.device", "gpu"), "must be one of auto, cpu, cuda, found \"gpu\""));
}

TEST_CASE("lists hold integers, and optional keys take null") {
  CHECK(sound_with({"rollout.rollout_stop_token_ids=[3, 5]"}).rollout.rollout_stop_token_ids ==
        std::vector<int64_t>{3, 5});
  CHECK(sound_with({"rollout.rollout_stop_token_ids=[]"}).rollout.rollout_stop_token_ids.empty());
  CHECK(contains(set("rollout.rollout_stop_token_ids", "3"), "must be a list of integers"));
  CHECK(contains(set("rollout.rollout_stop_token_ids", "[3, x]"), "found \"x\" in it"));
  CHECK(contains(set("rollout.rollout_stop_token_ids", "[[3]]"), "found a list in it"));
  CHECK(sound_with({"algorithm.eps_clip_c=3.0"}).algorithm.eps_clip_c == 3.0);
  CHECK_FALSE(sound_with({"algorithm.eps_clip_c=3.0", "algorithm.eps_clip_c=null"}).algorithm.eps_clip_c.has_value());
  CHECK(contains(set("algorithm.eps_clip_c", "1"), "must be a number above 1"));
}

TEST_CASE("a list of texts may be a single text") {
  const std::vector<std::string> one{"builtin:sort_digits"}, two{"builtin:sort_digits", "builtin:sort_digits"};
  CHECK(sound_with({}).data.prompt_data == one);
  CHECK(sound_with({"data.prompt_data=[builtin:sort_digits]"}).data.prompt_data == one);
  CHECK(sound_with({"data.prompt_data=[builtin:sort_digits, 'builtin:sort_digits']"}).data.prompt_data == two);
  const std::string list = "data: {prompt_data: [builtin:sort_digits, builtin:sort_digits]}\n";
  std::string text = kSound;
  text.replace(text.find("data:"), text.find("reward:") - text.find("data:"), list);
  CHECK(parse(text, "s.yaml").data.prompt_data == two);
  CHECK(contains(set("data.prompt_data", "[]"), "found an empty list"));
  CHECK(contains(set("data.prompt_data", "[builtin:sort_digits, 3]"), "found \"3\""));
  CHECK(contains(set("data.prompt_data", "[builtin:sort_digits, [x]]"), "found a list"));
  CHECK(contains(set("data.prompt_data", "{a: b}"), "must be text or a list of texts, found a mapping"));
  for (const std::string none : {"", "null"}) CHECK(contains(set("data.prompt_data", none), "found nothing"));
}

TEST_CASE("defaults are slime's") {
  const ExperimentSpec spec = sound_with({});
  CHECK(spec.seed == 1234);
  CHECK(spec.trainer.lr == 1e-6);
  CHECK(spec.trainer.clip_grad == 1.0);
  CHECK(spec.algorithm.eps_clip == 0.2);
  CHECK(spec.rollout.rollout_top_k == -1);
  CHECK(spec.weight_sync.update_weight_buffer_size.count == 536870912);
  CHECK(spec.weight_sync.timeout == std::chrono::seconds(900));
}
