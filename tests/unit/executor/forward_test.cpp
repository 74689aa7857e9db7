#include "executor/host_forward.hpp"

#include <torch/utils.h>

#include "torch_doctest.hpp"

#include "base/random.hpp"
#include "reference.hpp"

using namespace vime;
using namespace vime::executor;

namespace {

ForwardShape shape_of(int64_t slots, int64_t rows) {
  return {slots, 64, rows, LogprobsMode::processed};
}

// Rows [begin, end) of a sequence.
void append_rows(std::vector<engine::TokenRow>& rows, const torch::Tensor& ids, int64_t begin, int64_t end,
                 int32_t slot) {
  for (int64_t i = begin; i < end; ++i) {
    rows.push_back({static_cast<int32_t>(ids[i].item<int64_t>()), static_cast<int32_t>(i), slot});
  }
}

}  // namespace

TEST_CASE("logits over the KV cache agree with the reference models, whatever the cut into steps") {
  for (const std::string& name : reference_names()) {
    CAPTURE(name);
    LocalModel local(name);
    HostForward forward(local.decoder, 1, shape_of(3, 16));
    const torch::Tensor ids = reference_tensor(name, "input_ids");
    const torch::Tensor expected = reference_tensor(name, "logits").to(torch::kFloat32);
    const int64_t length = ids.size(1);
    torch::Tensor found = torch::zeros_like(expected);
    // Prompts of different lengths first, then row by row, all sequences in one step.
    const int64_t prompt[3] = {20, 1, 7};
    for (int64_t step = 0; step < length; ++step) {
      std::vector<engine::TokenRow> rows;
      std::vector<std::pair<int64_t, int64_t>> places;
      for (int64_t sequence = 0; sequence < 3; ++sequence) {
        const int64_t begin = step == 0 ? 0 : prompt[sequence] + step - 1;
        const int64_t end = std::min(prompt[sequence] + step, length);
        for (int64_t i = begin; i < end; ++i) places.emplace_back(sequence, i);
        if (begin < end) append_rows(rows, ids[sequence], begin, end, static_cast<int32_t>(2 - sequence));
      }
      if (rows.empty()) break;
      const torch::Tensor logits = forward.logits(rows);
      for (std::size_t i = 0; i < places.size(); ++i) {
        found[places[i].first][places[i].second] = logits[static_cast<int64_t>(i)];
      }
    }
    // Relative 1e-5 of the largest: the reference's own tolerance for float32.
    const double tolerance = 1e-5 * expected.abs().max().item<double>();
    CHECK((found - expected).abs().max().item<double>() < tolerance);
  }
}

TEST_CASE("a row's logits are the same bits alone and between other rows, in any slot and place") {
  LocalModel local("qwen3");
  HostForward alone(local.decoder, 1, shape_of(1, 16));
  HostForward crowded(local.decoder, 1, shape_of(9, 16));
  const torch::Tensor ids = reference_tensor("qwen3", "input_ids");
  const int64_t length = 12;
  std::vector<engine::TokenRow> rows;
  append_rows(rows, ids[0], 0, length, 0);
  const torch::Tensor expected = alone.logits(rows);

  for (uint64_t trial = 0; trial < 40; ++trial) {
    // Other sequences of random tokens around it, and the sequence itself cut at a random place.
    const auto cut = 1 + static_cast<int64_t>(mix_key(trial, 1) % static_cast<uint64_t>(length - 1));
    const auto slot = static_cast<int32_t>(mix_key(trial, 2) % 9);
    std::vector<torch::Tensor> found;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, cut}, {cut, length}}) {
      std::vector<engine::TokenRow> step;
      const int64_t before = static_cast<int64_t>(mix_key(trial, 3, static_cast<uint64_t>(begin)) % 7);
      const auto noise = [&](int64_t count, int32_t shift) {
        for (int64_t i = 0; i < count; ++i) {
          const auto other = static_cast<int32_t>((slot + 1 + shift + i) % 9);
          const auto token = static_cast<int32_t>(mix_key(trial, 4, static_cast<uint64_t>(i + shift)) % 160);
          if (other != slot) step.push_back({token, 0, other});
        }
      };
      noise(before, 0);
      const auto at = static_cast<int64_t>(step.size());
      append_rows(step, ids[0], begin, end, slot);
      noise(5, 8);
      found.push_back(crowded.logits(step).slice(0, at, at + end - begin));
    }
    REQUIRE(torch::equal(torch::cat(found), expected));
  }
}

TEST_CASE("sampled log-probs are those of a plain forward over the whole sequence") {
  LocalModel local("qwen2");
  HostForward forward(local.decoder, 1, shape_of(1, 16));
  std::vector<int64_t> ids = {3, 14, 15, 92, 65};
  const std::size_t prompt = ids.size();
  std::vector<float> logprobs;
  engine::Batch batch;
  for (std::size_t i = 0; i < prompt; ++i)
    batch.rows.push_back({static_cast<int32_t>(ids[i]), static_cast<int32_t>(i), 0});
  for (int64_t step = 0; step < 20; ++step) {
    engine::SampleSpec spec;
    spec.row = static_cast<int32_t>(batch.rows.size() - 1);
    spec.temperature = 0.8f;
    spec.seed = 5;
    spec.step = step;
    batch.samples = {spec};
    const engine::Sampled sampled = forward.run(batch, true).at(0);
    ids.push_back(sampled.token);
    logprobs.push_back(sampled.logprob);
    batch.rows = {{sampled.token, static_cast<int32_t>(ids.size() - 1), 0}};
  }
  const torch::NoGradGuard no_grad;
  const auto length = static_cast<int64_t>(ids.size());
  const torch::Tensor all = torch::tensor(ids, torch::kInt64);
  const torch::Tensor hidden =
      local.decoder.hidden_states(all, torch::arange(length), model::packed_attention({length}));
  const torch::Tensor expected =
      model::token_logprobs(local.decoder.logits(hidden).slice(0, 0, length - 1), all.slice(0, 1, length), 0.8,
                            model::Entropy::none, 0, model::single_rank())
          .logprobs;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    CHECK(std::abs(logprobs[i] - expected[static_cast<int64_t>(prompt - 1 + i)].item<float>()) < 1e-4f);
  }
}
