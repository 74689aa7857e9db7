// Figures of the loop: what the ranks' answers add up to, evaluation shares, and samples made of labels.
#include <doctest/doctest.h>

#include <cmath>

#include "base/error.hpp"
#include "loop/evaluation.hpp"
#include "loop/rollouts.hpp"
#include "loop/train_figures.hpp"
#include "text/plain_tokenizers.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

Json step_of(double loss, double grad_norm, int applied) {
  return {{"sums",
           {{"train/loss", std::isfinite(loss) ? Json(loss) : Json()},
            {"train/kl_loss", 0.0},
            {"train/ppo_kl", 0.0},
            {"train/ppo_kl_abs", 0.0},
            {"train/train_rollout_logprob_abs_diff", 0.0}}},
          {"same",
           {{"train/grad_norm", std::isfinite(grad_norm) ? Json(grad_norm) : Json()},
            {"train/lr", 0.5},
            {"train/step_applied", applied}}}};
}

Json reply_of(std::vector<Json> steps) {
  return {{"steps", steps}};
}

}  // namespace

TEST_CASE("shares are added over the ranks, figures that all ranks have are taken once, and steps are averaged") {
  const TrainFigures figures = train_figures(
      {reply_of({step_of(1.0, 3.0, 1), step_of(2.0, 5.0, 1)}), reply_of({step_of(0.5, 3.0, 1), step_of(0.25, 5.0, 1)})},
      4, {}, {});
  CHECK(figures.optimizer_steps == 2);
  CHECK(figures.metrics["train/loss"] == doctest::Approx((1.5 + 2.25) / 2));
  CHECK(figures.metrics["train/grad_norm"] == doctest::Approx(4.0));
  CHECK(figures.metrics["train/lr"] == doctest::Approx(0.5));
  CHECK(figures.metrics["train/nonfinite_steps"] == 0);
  CHECK_FALSE(figures.metrics.contains("train/step_applied"));
  CHECK(figures.problems.empty());
}

TEST_CASE("the peak of memory is the largest rank's, weights and tensors together") {
  const auto reply = [](int64_t arena, int64_t peak) {
    return Json{{"memory", {{"arena_bytes", arena}, {"used_bytes", 1}, {"peak_bytes", peak}}}};
  };
  CHECK(peak_memory({reply(10, 5), reply(12, 7), reply(18, 0)}) == 19);
  CHECK_THROWS_AS(peak_memory({Json::object()}), Error);
}

TEST_CASE("a step that was not applied is counted and named") {
  const TrainFigures figures = train_figures({reply_of({step_of(1.0, 3.0, 1), step_of(NAN, NAN, 0)})}, 4, {}, {});
  CHECK(figures.nonfinite_steps == 1);
  CHECK(std::isnan(figures.metrics["train/grad_norm"].get<double>()));
  REQUIRE(figures.problems.size() == 2);
  CHECK(figures.problems[0].find("rollout 4, optimizer step 1: gradients are not finite") == 0);
}

TEST_CASE("pass@k is averaged over the prompts, and only a full score counts as right") {
  // Two prompts with four answers: one right of four, and none (0.99 is not right).
  const auto shares = pass_at({0, 1, 0, 0.5, 0.99, 0, 0, 0}, 4);
  REQUIRE(shares.size() == 3);
  CHECK(shares[0] == std::pair<int64_t, double>(1, 0.125));
  CHECK(shares[1].second == doctest::Approx(0.25));
  CHECK(shares[2] == std::pair<int64_t, double>(4, 0.5));
}

TEST_CASE("a label becomes the response of a sample, with the end token, and is cut at the limit") {
  const text::CharTokenizer tokenizer("0123=");
  const data::Prompt prompt{.text = "21=", .label = "12"};
  const rollout::Sample whole = labelled_sample(tokenizer, tokenizer.eos_id(), prompt, 4);
  CHECK(whole.tokens == std::vector<int64_t>{4, 3, 6, 3, 4, tokenizer.eos_id()});
  CHECK(whole.response_len == 3);
  CHECK(whole.state == rollout::SampleState::completed);
  CHECK(whole.is_trainable());
  const rollout::Sample cut = labelled_sample(tokenizer, tokenizer.eos_id(), prompt, 2);
  CHECK(cut.response_len == 2);
  CHECK(cut.state == rollout::SampleState::truncated);
  CHECK(labelled_sample(tokenizer, std::nullopt, prompt, 4).response_len == 2);
}

TEST_CASE("rollouts to replay must all be there") {
  const TempDir folder;
  for (const char* name : {"rollout_000000.safetensors", "rollout_000001.safetensors"}) {
    write_file_atomic(folder.path() / name, "x");
  }
  require_rollouts(folder.path(), 2);
  try {
    require_rollouts(folder.path(), 3);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.message().find("rollout_000002.safetensors is missing") != std::string::npos);
    CHECK(error.hint() == "set rollout.num_rollout to 2");
  }
}
