#include "model/linear.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>

#include "model/recompute.hpp"
#include "torch_doctest.hpp"

using namespace vime::model;

namespace {

struct Inputs {
  torch::Tensor x, weight, bias;

  Inputs() {
    torch::manual_seed(3);
    x = torch::randn({10, 6}).requires_grad_(true);
    weight = torch::randn({4, 6}).requires_grad_(true);
    bias = torch::randn({4}).requires_grad_(true);
  }
  void check_gradients_of(const torch::Tensor& y) const {
    const std::vector<torch::Tensor> inputs = {x, weight, bias};
    const torch::Tensor dy = torch::arange(40, torch::kFloat32).view({10, 4});
    const auto expected = torch::autograd::grad({torch::linear(x, weight, bias)}, inputs, {dy});
    const auto found = torch::autograd::grad({y}, inputs, {dy});
    for (size_t i = 0; i < found.size(); ++i) CHECK(torch::allclose(found[i], expected[i], 1e-5, 1e-5));
  }
};

}  // namespace

TEST_CASE("products of some rows at a time are the product of all, the last rows too") {
  const Inputs in;
  for (const int64_t rows : {3, 5, 64}) {
    const torch::Tensor y = linear(in.x, in.weight, in.bias, rows);
    CHECK(torch::allclose(y, torch::linear(in.x, in.weight, in.bias), 1e-5, 1e-6));
    in.check_gradients_of(y);
  }
  CHECK(linear(in.x, in.weight, {}, 3).sizes() == torch::IntArrayRef({10, 4}));
}

TEST_CASE("an input that is made again is not kept, and made once") {
  const Inputs in;
  int made = 0;
  const torch::Tensor copy = in.x.detach().clone();
  const torch::Tensor y = linear(in.x, in.weight, in.bias, 0, [&] {
    ++made;
    CHECK_FALSE(torch::GradMode::is_enabled());
    return copy;
  });
  CHECK(made == 0);
  in.check_gradients_of(y);
  CHECK(made == 1);
}

TEST_CASE("columns are split into views and their gradients put together, those that nobody used as zeros") {
  const torch::Tensor y = torch::randn({3, 6}).requires_grad_(true);
  const std::vector<torch::Tensor> parts = split_columns(y * 1, {1, 2, 3});
  REQUIRE(parts.size() == 3);
  CHECK(torch::equal(parts[1], y.slice(1, 1, 3)));
  (parts[0].sum() + 2 * parts[2].sum()).backward();
  CHECK(torch::equal(y.grad(), torch::tensor({1.0f, 0.0f, 0.0f, 2.0f, 2.0f, 2.0f}).expand({3, 6})));
}

TEST_CASE("what is computed again has the gradients of what is kept, bit by bit") {
  const Inputs in;
  const auto part = [&](const torch::Tensor& x) { return torch::silu(torch::linear(x, in.weight, in.bias)); };
  const auto gradients = [&](const torch::Tensor& y) {
    for (const torch::Tensor& leaf : {in.x, in.weight, in.bias}) leaf.mutable_grad() = torch::Tensor();
    torch::autograd::backward({y}, {torch::ones_like(y)});
    return std::vector<torch::Tensor>{in.x.grad(), in.weight.grad(), in.bias.grad()};
  };
  const std::vector<torch::Tensor> kept = gradients(part(in.x));
  const std::vector<torch::Tensor> again = gradients(recomputed(part, in.x));
  for (size_t i = 0; i < kept.size(); ++i) CHECK(torch::equal(kept[i], again[i]));
}
