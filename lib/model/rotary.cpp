#include "model/rotary.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <algorithm>
#include <cmath>

#include "model/fused_kernels.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// In float32 throughout, as transformers computes it (modeling_rope_utils.py): at high frequencies one rounding more or
// less turns a distant position by a visible angle.
float scaled_frequency(float frequency, const arch::RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  if (scaling.type == "linear") return frequency / factor;
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const float wavelength = static_cast<float>(2.0 * M_PI) / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

torch::Tensor rotated(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin, double direction) {
  const int64_t half = x.size(-1) / 2;
  const torch::Tensor first = x.narrow(-1, 0, half);
  const torch::Tensor second = x.narrow(-1, half, half);
  torch::Tensor out = torch::empty(x.sizes(), x.options());
  torch::Tensor out_first = out.narrow(-1, 0, half);
  torch::Tensor out_second = out.narrow(-1, half, half);
  torch::mul_out(out_first, first, cos);
  out_first.addcmul_(second, sin, -direction);
  torch::mul_out(out_second, second, cos);
  out_second.addcmul_(first, sin, direction);
  return out;
}

// The gradient of a rotation is the rotation back.
struct Rotate : torch::autograd::Function<Rotate> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& cos,
                               const torch::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, 1.0);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], -1.0), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

Rotary::Rotary(const arch::ModelConfig& config, torch::Device device)
    : max_positions_(config.max_position_embeddings), device_(device) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor exponents =
      torch::arange(0, config.head_dim, 2, torch::kFloat32) / static_cast<double>(config.head_dim);
  const torch::Tensor inverse = torch::reciprocal(torch::pow(config.rope_theta, exponents)).contiguous();
  frequencies_.assign(inverse.data_ptr<float>(), inverse.data_ptr<float>() + inverse.numel());
  if (config.rope_scaling) {
    for (float& frequency : frequencies_) frequency = scaled_frequency(frequency, *config.rope_scaling);
  }
  reserve(1);
}

// Scalar cosines: LibTorch's vectorised ones may differ in the last bit with a row's place in the batch.
void Rotary::reserve(int64_t end) {
  if (cos_.defined() && end <= cos_.size(0)) return;
  int64_t rows = 256;
  while (rows < end) rows *= 2;
  rows = std::min(rows, max_positions_);
  const auto half = static_cast<int64_t>(frequencies_.size());
  torch::Tensor cosines = torch::empty({rows, half}, torch::kFloat32);
  torch::Tensor sines = torch::empty({rows, half}, torch::kFloat32);
  float* cos = cosines.data_ptr<float>();
  float* sin = sines.data_ptr<float>();
  at::parallel_for(0, rows, 1024, [&](int64_t first, int64_t last) {
    for (int64_t i = first * half; i < last * half; ++i) {
      const float angle = static_cast<float>(i / half) * frequencies_[static_cast<std::size_t>(i % half)];
      cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  });
  cos_ = cosines.to(device_);
  sin_ = sines.to(device_);
}

Rotary::Angles Rotary::angles(const torch::Tensor& positions, const torch::TensorOptions& options) const {
  if (fused_kernels_fit(device_, c10::typeMetaToScalarType(options.dtype()))) {
    return {cos_, sin_, positions.contiguous()};
  }
  const torch::NoGradGuard no_grad;
  const auto rows_of = [&](const torch::Tensor& table) {
    return table.index_select(0, positions).unsqueeze(1).to(options);
  };
  return {rows_of(cos_), rows_of(sin_), torch::Tensor()};
}

torch::Tensor rotate(const torch::Tensor& x, const Rotary::Angles& angles) {
  return Rotate::apply(x, angles.cos, angles.sin);
}

}  // namespace vime::model
