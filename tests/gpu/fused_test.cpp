// The fused functions of a layer on a GPU in bfloat16 against their formulas under autograd in float64, and a whole
// decoder against itself in float32.
#include "torch_doctest.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <functional>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "model/decoder.hpp"
#include "model/fused.hpp"
#include "model/fused_kernels.hpp"
#include "model/main_gradient.hpp"
#include "model/torch_device.hpp"

using namespace vime;
using namespace vime::model;

namespace {

using Tensors = std::vector<torch::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

torch::Device device() {
  return select_torch_device("cuda", gpu::device_uuid(0));
}

torch::Tensor random(at::IntArrayRef shape) {
  return torch::randn(shape, torch::TensorOptions().dtype(torch::kFloat32).device(device())).to(torch::kBFloat16);
}

// Largest difference as a share of the largest value.
double off(const torch::Tensor& found, const torch::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  const torch::Tensor difference = (found.to(torch::kFloat64) - expected).abs().max();
  return difference.item<double>() / expected.abs().max().item<double>();
}

struct Run {
  Tensors outputs, gradients;
};

// Outputs, and the gradients of the inputs for these gradients of the outputs.
Run run(const Function& function, const Tensors& inputs, const Tensors& directions) {
  Run result;
  Tensors leaves;
  for (const torch::Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_(true));
  result.outputs = function(leaves);
  Tensors roots, gradients;
  for (size_t i = 0; i < directions.size(); ++i) {
    if (!directions[i].defined()) continue;
    roots.push_back(result.outputs[i]);
    gradients.push_back(directions[i]);
  }
  torch::autograd::backward(roots, gradients);
  for (const torch::Tensor& leaf : leaves) result.gradients.push_back(leaf.grad());
  return result;
}

// With gradients of weights (inputs from first_weight on) given to autograd, and added to main gradients.
void compare(const Function& fused, const Function& formula, const Tensors& inputs, const Tensors& directions,
             size_t first_weight) {
  Tensors wide_inputs, wide_directions;
  for (const torch::Tensor& input : inputs) wide_inputs.push_back(input.to(torch::kFloat64));
  for (const torch::Tensor& direction : directions)
    wide_directions.push_back(direction.defined() ? direction.to(torch::kFloat64) : direction);
  const Run expected = run(formula, wide_inputs, wide_directions);
  const Run found = run(fused, inputs, directions);
  // bf16 keeps half of a 128th of a value; what is compared is compared with the largest one.
  for (size_t i = 0; i < found.outputs.size(); ++i) {
    CAPTURE(i);
    CHECK((found.outputs[i].scalar_type() == torch::kBFloat16));
    CHECK(off(found.outputs[i], expected.outputs[i]) < 1.0 / 200);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    CHECK(off(found.gradients[i], expected.gradients[i]) < 1.0 / 150);
  }
  const Run again = run(fused, inputs, directions);
  for (size_t i = 0; i < inputs.size(); ++i) CHECK(found.gradients[i].equal(again.gradients[i]));

  // Main gradients lie in one buffer and hold something already.
  Tensors before;
  const Run into_main = run(
      [&](Tensors leaves) {
        before.clear();
        for (size_t i = first_weight; i < leaves.size(); ++i) {
          before.push_back(torch::randn(leaves[i].sizes(), leaves[i].options().dtype(torch::kFloat32)).detach());
          set_main_gradient(leaves[i], before.back().clone());
        }
        return fused(leaves);
      },
      inputs, directions);
  for (size_t i = first_weight; i < inputs.size(); ++i) {
    CAPTURE(i);
    CHECK((into_main.gradients[i].scalar_type() == torch::kFloat32));
    CHECK(off((into_main.gradients[i] - before[i - first_weight]), expected.gradients[i]) < 1e-3);
  }
  for (size_t i = 0; i < first_weight; ++i) CHECK(into_main.gradients[i].equal(found.gradients[i]));
}

torch::Tensor wide_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  return x * (x.square().mean(-1, true) + epsilon).rsqrt() * weight;
}

torch::Tensor wide_rotation(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const torch::Tensor first = x.narrow(-1, 0, half);
  const torch::Tensor second = x.narrow(-1, half, half);
  return torch::cat({first * cos - second * sin, second * cos + first * sin}, -1);
}

}  // namespace

TEST_CASE("add_rms_norm and its gradients are those of the formula, whichever outputs are used") {
  torch::manual_seed(1);
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 2560}, {700, 1024}, {33, 100}, {5, 7}}) {
    CAPTURE(rows);
    CAPTURE(width);
    const Function fused = [](const Tensors& in) {
      const Normed normed = add_rms_norm(in[0], in[1], in[2], 1e-6);
      return Tensors{normed.normal, normed.sum};
    };
    const Function formula = [](const Tensors& in) {
      // The sum is rounded before it is normalised; the gradient passes.
      const torch::Tensor sum = in[0] + in[1];
      const torch::Tensor rounded = sum + (sum.to(torch::kBFloat16).to(torch::kFloat64) - sum).detach();
      return Tensors{wide_norm(rounded, in[2], 1e-6), rounded};
    };
    const Tensors inputs = {random({rows, width}), random({rows, width}), random({width})};
    compare(fused, formula, inputs, {random({rows, width}), random({rows, width})}, 2);
    compare(fused, formula, inputs, {random({rows, width}), torch::Tensor()}, 2);
    const Function fused_alone = [](const Tensors& in) { return Tensors{add_rms_norm(in[0], {}, in[1], 1e-6).normal}; };
    const Function formula_alone = [](const Tensors& in) { return Tensors{wide_norm(in[0], in[1], 1e-6)}; };
    compare(fused_alone, formula_alone, {inputs[0], inputs[2]}, {random({rows, width})}, 1);
  }
}

TEST_CASE("norm_and_rotate and its gradients are those of the formula, joined and apart, with norms and without") {
  torch::manual_seed(2);
  struct Case {
    int64_t tokens, q_heads, kv_heads, head_dim;
    bool norms;
  };
  for (const Case& c : {Case{300, 4, 2, 128, true}, Case{300, 4, 2, 128, false}, Case{9, 3, 1, 64, true},
                        Case{1, 2, 2, 80, true}, Case{17, 1, 1, 10, false}}) {
    CAPTURE(c.tokens);
    CAPTURE(c.head_dim);
    const int64_t q_width = c.q_heads * c.head_dim;
    const int64_t kv_width = c.kv_heads * c.head_dim;
    const torch::Tensor positions =
        torch::randint(0, 50, {c.tokens}, torch::TensorOptions().dtype(torch::kInt64).device(device()));
    const torch::Tensor turns = torch::randn({50, c.head_dim / 2}, torch::TensorOptions().device(device()));
    const Rotary::Angles angles = {turns.cos(), turns.sin(), positions};
    const auto norms_of = [&](const Tensors& in, size_t first) {
      return c.norms ? HeadNorms{in[first], in[first + 1], 1e-6} : HeadNorms{};
    };
    const auto formula_of = [&](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                const HeadNorms& norms) {
      const auto heads = [&](const torch::Tensor& rows) { return rows.reshape({c.tokens, -1, c.head_dim}); };
      const auto turned = [&](const torch::Tensor& rows, const torch::Tensor& weight) {
        const torch::Tensor x = weight.defined() ? wide_norm(heads(rows), weight, norms.epsilon) : heads(rows);
        return wide_rotation(x, angles.cos.to(torch::kFloat64).index_select(0, positions).unsqueeze(1),
                             angles.sin.to(torch::kFloat64).index_select(0, positions).unsqueeze(1));
      };
      return Tensors{turned(q, norms.q_weight), turned(k, norms.k_weight), heads(v)};
    };
    const Tensors directions = {random({c.tokens, c.q_heads, c.head_dim}), random({c.tokens, c.kv_heads, c.head_dim}),
                                random({c.tokens, c.kv_heads, c.head_dim})};
    Tensors joined = {random({c.tokens, q_width + 2 * kv_width})};
    Tensors apart = {random({c.tokens, q_width}), random({c.tokens, kv_width}), random({c.tokens, kv_width})};
    for (Tensors* inputs : {&joined, &apart}) {
      if (!c.norms) continue;
      inputs->push_back(random({c.head_dim}));
      inputs->push_back(random({c.head_dim}));
    }
    compare(
        [&](const Tensors& in) {
          const Heads heads = norm_and_rotate(in[0], q_width, c.head_dim, norms_of(in, 1), angles);
          return Tensors{heads.q, heads.k, heads.v};
        },
        [&](const Tensors& in) {
          return formula_of(in[0].narrow(1, 0, q_width), in[0].narrow(1, q_width, kv_width),
                            in[0].narrow(1, q_width + kv_width, kv_width), norms_of(in, 1));
        },
        joined, directions, 1);
    compare(
        [&](const Tensors& in) {
          const Heads heads = norm_and_rotate(in[0], in[1], in[2], c.head_dim, norms_of(in, 3), angles);
          return Tensors{heads.q, heads.k, heads.v};
        },
        [&](const Tensors& in) { return formula_of(in[0], in[1], in[2], norms_of(in, 3)); }, apart, directions, 3);
  }
}

TEST_CASE("swiglu and its gradients are those of the formula, joined, apart and with the down projection") {
  torch::manual_seed(3);
  const Function formula_joined = [](const Tensors& in) {
    const int64_t width = in[0].size(1) / 2;
    return Tensors{torch::silu(in[0].narrow(1, 0, width)) * in[0].narrow(1, width, width)};
  };
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 9728}, {200, 512}, {7, 33}}) {
    CAPTURE(rows);
    CAPTURE(width);
    const torch::Tensor gate_up = random({rows, 2 * width});
    const Tensors direction = {random({rows, width})};
    compare([](const Tensors& in) { return Tensors{swiglu(in[0])}; }, formula_joined, {gate_up}, direction, 1);
    compare([](const Tensors& in) { return Tensors{swiglu(in[0], in[1])}; },
            [](const Tensors& in) { return Tensors{torch::silu(in[0]) * in[1]}; },
            {random({rows, width}), random({rows, width})}, direction, 2);
    // The formula rounds the product where the function does; the gradient passes.
    compare([](const Tensors& in) { return Tensors{swiglu_product(in[0], in[1], 0)}; },
            [&](const Tensors& in) {
              const torch::Tensor product = formula_joined({in[0]})[0];
              const torch::Tensor rounded =
                  product + (product.to(torch::kBFloat16).to(torch::kFloat64) - product).detach();
              return Tensors{rounded.mm(in[1].t())};
            },
            {gate_up, random({64, width})}, {random({rows, 64})}, 1);
  }
}

TEST_CASE("the gradient of embedding rows is the sum over each id's rows") {
  torch::manual_seed(4);
  const torch::Tensor ids = torch::randint(0, 12, {500}, torch::TensorOptions().dtype(torch::kInt64).device(device()));
  compare([&](const Tensors& in) { return Tensors{embedding_rows(in[0], ids)}; },
          [&](const Tensors& in) { return Tensors{torch::embedding(in[0], ids)}; }, {random({14, 96})},
          {random({500, 96})}, 0);
}

TEST_CASE("embedding rows of other ranks' tokens are zero and their gradients are left out") {
  torch::manual_seed(5);
  const auto options = torch::TensorOptions().dtype(torch::kInt64).device(device());
  const torch::Tensor ids = torch::randint(-1, 12, {500}, options);
  const torch::Tensor foreign = (ids < 0).unsqueeze(1), any = ids.clamp_min(0);
  const Function formula = [&](const Tensors& in) {
    return Tensors{torch::embedding(in[0], any).masked_fill(foreign, 0)};
  };
  const torch::Tensor table = random({14, 96}), direction = random({500, 96});
  compare([&](const Tensors& in) { return Tensors{own_embedding_rows(in[0], ids)}; }, formula, {table}, {direction}, 0);
  // Left out by the kernel itself, not only because what they would bring is zero.
  const auto rows = [&](const Tensors& in) { return Tensors{kernel_embedding_rows(in[0], any, ids)}; };
  const Run found = run(rows, {table}, {direction});
  const Run expected = run(formula, {table.to(torch::kFloat64)}, {direction.to(torch::kFloat64)});
  CHECK(off(found.gradients[0], expected.gradients[0]) < 1.0 / 200);
}

namespace {

struct OnDevice {
  OnDevice(const arch::ModelConfig& config, tensor::DType dtype)
      : arena(torch::empty({static_cast<int64_t>(arch::arena_layout(config, dtype, 0, 1).total_bytes)},
                           torch::TensorOptions().dtype(torch::kUInt8).device(device()))),
        decoder(config, dtype, single_rank(), static_cast<std::byte*>(arena.data_ptr()), device()) {
    arena.zero_();
    gradients = torch::zeros({arena.numel() / (dtype == tensor::DType::bf16 ? 2 : 4)},
                             torch::TensorOptions().dtype(torch::kFloat32).device(device()));
  }
  torch::Tensor arena, gradients;
  Decoder decoder;
};

struct Passed {
  torch::Tensor hidden;
  std::vector<torch::Tensor> gradients;  // of each parameter, in float32
};

// One pass forward and backward from fixed gradients of the hidden states.
Passed pass(OnDevice& on, arch::Recompute recompute) {
  const std::vector<int64_t> lengths = {33, 7, 60};
  std::vector<torch::Tensor> positions;
  for (const int64_t length : lengths) positions.push_back(torch::arange(length, torch::kInt64));
  torch::manual_seed(5);
  const torch::Tensor ids = torch::randint(0, on.decoder.config().vocab_size, {100}, torch::kInt64);
  const torch::Tensor direction = torch::randn({100, on.decoder.config().hidden_size}).to(device());
  on.decoder.require_grad(true);
  on.gradients.zero_();
  on.decoder.set_gradients(on.gradients);
  on.decoder.set_recompute(recompute);
  Passed result;
  const torch::Tensor hidden =
      on.decoder.hidden_states(ids, torch::cat(positions), packed_attention(lengths, device(), on.decoder.dtype()));
  result.hidden = hidden.detach().to(torch::kFloat32);
  hidden.backward(direction.to(hidden.scalar_type()));
  for (const Decoder::Named& parameter : on.decoder.parameters()) {
    result.gradients.push_back(parameter.value.grad().clone());
  }
  return result;
}

arch::ModelConfig family(const std::string& name) {
  arch::ModelConfig config = arch::preset("tiny", 29);
  if (name == "qwen3") return config;
  config.qk_norm = false;
  config.qkv_bias = name == "qwen2";
  config.architecture = name == "qwen2" ? "Qwen2ForCausalLM" : "LlamaForCausalLM";
  config.model_type = name == "qwen2" ? "qwen2" : "llama";
  return config;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

}  // namespace

TEST_CASE("a bf16 decoder gives what the float32 one gives up to bf16's rounding, recomputing or not") {
  for (const std::string name : {"qwen3", "llama", "qwen2"}) {
    CAPTURE(name);
    OnDevice narrow(family(name), tensor::DType::bf16);
    OnDevice wide(family(name), tensor::DType::f32);
    init_weights(narrow.decoder, 11);
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < wide.decoder.parameters().size(); ++i) {
        torch::Tensor& value = narrow.decoder.parameters()[i].value;
        // Norms away from one and biases away from zero, where a gradient that is missing shows.
        if (value.dim() == 1) value.add_(torch::randn(value.sizes(), value.options()), 0.1);
        wide.decoder.parameters()[i].value.copy_(value);
      }
    }
    const Passed expected = pass(wide, arch::Recompute::none);
    const Passed found = pass(narrow, arch::Recompute::none);
    CHECK(distance(found.hidden, expected.hidden) < 0.02);
    for (size_t i = 0; i < found.gradients.size(); ++i) {
      // A bias of keys moves all scores of a query alike: its gradient is nothing but rounding. The head is not used.
      const std::string& parameter = wide.decoder.parameters()[i].name;
      if (parameter.ends_with("k_proj.bias") || parameter == "lm_head.weight") continue;
      CAPTURE(wide.decoder.parameters()[i].name);
      CHECK(distance(found.gradients[i], expected.gradients[i]) < 0.05);
    }
    for (const arch::Recompute recompute : {arch::Recompute::none, arch::Recompute::selective, arch::Recompute::full}) {
      const Passed again = pass(narrow, recompute);
      CHECK(again.hidden.equal(found.hidden));
      for (size_t i = 0; i < found.gradients.size(); ++i) {
        CAPTURE(wide.decoder.parameters()[i].name);
        CAPTURE(static_cast<int>(recompute));
        if (recompute != arch::Recompute::full) {
          CHECK(again.gradients[i].equal(found.gradients[i]));
        } else if (found.gradients[i].abs().max().item<float>() > 0 &&
                   !wide.decoder.parameters()[i].name.ends_with("k_proj.bias")) {
          // Between layers the gradients of norm and residual path are rounded apart.
          CHECK(distance(again.gradients[i], found.gradients[i]) < 0.03);
        }
      }
    }
  }
}
