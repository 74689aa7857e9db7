#include "model/fused_kernels.hpp"

#include <torch/autograd.h>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "gpu/embedding_kernels.hpp"
#include "gpu/norm_kernels.hpp"
#include "gpu/rotary_kernels.hpp"
#include "gpu/swiglu_kernels.hpp"
#include "model/linear.hpp"
#include "model/main_gradient.hpp"
#include "model/torch_device.hpp"

namespace vime::model {
namespace {

using gpu::Bf16;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Autograd takes no undefined tensors among a function's inputs.
using MaybeTensor = std::optional<torch::Tensor>;
MaybeTensor maybe(const torch::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

// Null where there is no tensor.
Bf16* bits(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<Bf16*>(tensor.data_ptr()) : nullptr;
}
float* floats(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

torch::Tensor new_floats(const torch::Tensor& like, int64_t count) {
  return torch::empty({count}, like.options().dtype(torch::kFloat32).requires_grad(false));
}

// Where a weight's gradient is added: its main gradient, or zeros that are handed to autograd in the end.
class WeightGradient {
 public:
  WeightGradient(const torch::Tensor& weight, bool wanted) {
    if (!weight.defined() || !wanted) return;
    sum_ = main_gradient(weight);
    if (sum_.defined()) return;
    sum_ = torch::zeros(weight.sizes(), weight.options().dtype(torch::kFloat32).requires_grad(false));
    type_ = weight.scalar_type();
    own_ = true;
  }
  const torch::Tensor& sum() const { return sum_; }
  torch::Tensor for_autograd() const { return own_ ? sum_.to(type_) : torch::Tensor(); }

 private:
  torch::Tensor sum_;
  torch::ScalarType type_ = torch::kBFloat16;
  bool own_ = false;
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  // Without delta: the normal alone.
  static tensor_list forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                             const MaybeTensor& maybe_delta, double epsilon) {
    const torch::Tensor delta = maybe_delta.value_or(torch::Tensor());
    gpu::AddRmsNorm norm;
    const torch::Tensor from = x.contiguous();
    const torch::Tensor added = delta.defined() ? delta.contiguous() : delta;
    const torch::Tensor sum = delta.defined() ? torch::empty(x.sizes(), x.options()) : torch::Tensor();
    const torch::Tensor normal = torch::empty(x.sizes(), x.options());
    norm.width = x.size(-1);
    norm.rows = x.numel() / norm.width;
    const torch::Tensor inverse = new_floats(x, norm.rows);
    norm.x = bits(from);
    norm.delta = bits(added);
    norm.weight = bits(weight);
    norm.sum = bits(sum);
    norm.normal = bits(normal);
    norm.inverse = floats(inverse);
    norm.epsilon = static_cast<float>(epsilon);
    gpu::add_rms_norm(norm, current_stream(x.device()));
    context->set_materialize_grads(false);
    context->save_for_backward({delta.defined() ? sum : from, weight, inverse});
    context->saved_data["adds"] = delta.defined();
    if (!delta.defined()) return {normal};
    return {normal, sum};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &sum = saved[0], &weight = saved[1], &inverse = saved[2];
    const bool adds = context->saved_data["adds"].toBool();
    torch::Tensor d_sum = adds ? gradients[1] : torch::Tensor();
    if (!gradients[0].defined()) return {d_sum, torch::Tensor(), d_sum, torch::Tensor()};
    const torch::Tensor d_normal = gradients[0].contiguous();
    if (d_sum.defined()) d_sum = d_sum.contiguous();
    const torch::Tensor d_x = torch::empty(sum.sizes(), sum.options());
    const WeightGradient d_weight(weight, context->needs_input_grad(1));
    gpu::AddRmsNormBackward norm;
    norm.width = sum.size(-1);
    norm.rows = sum.numel() / norm.width;
    const torch::Tensor workspace = new_floats(sum, gpu::add_rms_norm_workspace(norm.width));
    norm.d_normal = bits(d_normal);
    norm.d_sum = bits(d_sum);
    norm.sum = bits(sum);
    norm.weight = bits(weight);
    norm.inverse = floats(inverse);
    norm.d_x = bits(d_x);
    norm.d_weight = floats(d_weight.sum());
    norm.workspace = floats(workspace);
    gpu::add_rms_norm_backward(norm, current_stream(sum.device()));
    return {d_x, d_weight.for_autograd(), adds ? d_x : torch::Tensor(), torch::Tensor()};
  }
};

// Heads of a token one behind the other: [tokens, heads * head_dim] or [tokens, heads, head_dim].
gpu::Heads<Bf16> heads_of(const torch::Tensor& rows, int64_t head_dim) {
  return {bits(rows), rows.dim() == 3 ? rows.size(1) : rows.size(1) / head_dim, rows.stride(0)};
}
gpu::Heads<const Bf16> read_heads(const torch::Tensor& rows, int64_t head_dim) {
  const gpu::Heads<Bf16> heads = heads_of(rows, head_dim);
  return {heads.values, heads.heads, heads.stride};
}

// Columns of [tokens, heads, head_dim] side by side.
int64_t width_of(const torch::Tensor& heads) {
  return heads.size(1) * heads.size(2);
}

torch::Tensor new_heads(const torch::Tensor& rows, int64_t head_dim) {
  return torch::empty({rows.size(0), rows.size(1) / head_dim, head_dim}, rows.options());
}

// What forward and backward pass of a rotation share.
struct Rotation {
  torch::Tensor q_weight, k_weight, cos, sin, positions;
  double epsilon = 0;
  int64_t head_dim = 0;

  gpu::RotaryShape shape(int64_t tokens) const {
    gpu::RotaryShape shape;
    shape.tokens = tokens;
    shape.head_dim = head_dim;
    shape.positions = positions.data_ptr<int64_t>();
    shape.cos = floats(cos);
    shape.sin = floats(sin);
    shape.q_weight = bits(q_weight);
    shape.k_weight = bits(k_weight);
    shape.epsilon = static_cast<float>(epsilon);
    return shape;
  }
  void keep(AutogradContext* context, const torch::Tensor& q, const torch::Tensor& k) const {
    const bool norms = q_weight.defined();
    context->save_for_backward(
        {norms ? q : torch::Tensor(), norms ? k : torch::Tensor(), q_weight, k_weight, cos, sin, positions});
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["head_dim"] = head_dim;
  }
  static Rotation kept(AutogradContext* context, const tensor_list& saved) {
    return {saved[2],
            saved[3],
            saved[4],
            saved[5],
            saved[6],
            context->saved_data["epsilon"].toDouble(),
            context->saved_data["head_dim"].toInt()};
  }
};

// The gradients of the weights, for autograd. q_weight_input: which of the function's tensors q's weight is, k's being
// the next. d_v_in is undefined where v is apart.
std::pair<torch::Tensor, torch::Tensor> turn_back(AutogradContext* context, size_t q_weight_input,
                                                  const Rotation& rotation, const tensor_list& gradients,
                                                  const torch::Tensor& q, const torch::Tensor& k,
                                                  const torch::Tensor& d_q_in, const torch::Tensor& d_k_in,
                                                  const torch::Tensor& d_v_in) {
  const int64_t dim = rotation.head_dim;
  const bool norms = rotation.q_weight.defined();
  const WeightGradient d_q_weight(rotation.q_weight, norms && context->needs_input_grad(q_weight_input));
  const WeightGradient d_k_weight(rotation.k_weight, norms && context->needs_input_grad(q_weight_input + 1));
  const torch::Tensor d_q = gradients[0].contiguous();
  const torch::Tensor d_k = gradients[1].contiguous();
  const torch::Tensor d_v = d_v_in.defined() ? gradients[2].contiguous() : torch::Tensor();
  torch::Tensor workspace;
  gpu::RotaryBackward work;
  work.d_q = read_heads(d_q, dim);
  work.d_k = read_heads(d_k, dim);
  work.d_q_in = heads_of(d_q_in, dim);
  work.d_k_in = heads_of(d_k_in, dim);
  if (d_v.defined()) {
    work.d_v = read_heads(d_v, dim);
    work.d_v_in = heads_of(d_v_in, dim);
  }
  if (norms) {
    work.q = read_heads(q, dim);
    work.k = read_heads(k, dim);
    work.d_q_weight = floats(d_q_weight.sum());
    work.d_k_weight = floats(d_k_weight.sum());
    workspace = new_floats(q, gpu::norm_and_rotate_workspace(dim));
    work.workspace = floats(workspace);
  }
  gpu::norm_and_rotate_backward(rotation.shape(d_q.size(0)), work, current_stream(d_q.device()));
  return {d_q_weight.for_autograd(), d_k_weight.for_autograd()};
}

// The weights come with the rotation too; as inputs of their own autograd knows them.
struct NormAndRotate : torch::autograd::Function<NormAndRotate> {
  static tensor_list forward(AutogradContext* context, const torch::Tensor& q, const torch::Tensor& k,
                             const MaybeTensor&, const MaybeTensor&, const Rotation& rotation) {
    const torch::Tensor q_rows = q.contiguous();
    const torch::Tensor k_rows = k.contiguous();
    const int64_t dim = rotation.head_dim;
    const torch::Tensor q_out = new_heads(q_rows, dim);
    const torch::Tensor k_out = new_heads(k_rows, dim);
    gpu::norm_and_rotate(rotation.shape(q.size(0)), read_heads(q_rows, dim), read_heads(k_rows, dim),
                         heads_of(q_out, dim), heads_of(k_out, dim), current_stream(q.device()));
    rotation.keep(context, q_rows, k_rows);
    return {q_out, k_out};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Rotation rotation = Rotation::kept(context, saved);
    const torch::TensorOptions options = gradients[0].options();
    const int64_t tokens = gradients[0].size(0);
    const torch::Tensor d_q = torch::empty({tokens, width_of(gradients[0])}, options);
    const torch::Tensor d_k = torch::empty({tokens, width_of(gradients[1])}, options);
    const auto [d_q_weight, d_k_weight] =
        turn_back(context, 2, rotation, gradients, saved[0], saved[1], d_q, d_k, torch::Tensor());
    return {d_q, d_k, d_q_weight, d_k_weight, torch::Tensor()};
  }
};

struct NormAndRotateJoined : torch::autograd::Function<NormAndRotateJoined> {
  static tensor_list forward(AutogradContext* context, const torch::Tensor& qkv, const MaybeTensor&, const MaybeTensor&,
                             int64_t q_width, const Rotation& rotation) {
    // Views of their own: nobody writes to them.
    const at::AutoDispatchBelowADInplaceOrView untracked;
    const torch::Tensor rows = qkv.contiguous();
    const int64_t dim = rotation.head_dim;
    const int64_t kv_width = (rows.size(1) - q_width) / 2;
    const torch::Tensor q = rows.narrow(1, 0, q_width);
    const torch::Tensor k = rows.narrow(1, q_width, kv_width);
    const torch::Tensor v = rows.narrow(1, q_width + kv_width, kv_width).view({rows.size(0), kv_width / dim, dim});
    const torch::Tensor q_out = new_heads(q, dim);
    const torch::Tensor k_out = new_heads(k, dim);
    gpu::norm_and_rotate(rotation.shape(rows.size(0)), read_heads(q, dim), read_heads(k, dim), heads_of(q_out, dim),
                         heads_of(k_out, dim), current_stream(rows.device()));
    rotation.keep(context, q, k);
    return {q_out, k_out, v};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Rotation rotation = Rotation::kept(context, saved);
    const int64_t tokens = gradients[0].size(0);
    const int64_t q_width = width_of(gradients[0]);
    const int64_t kv_width = width_of(gradients[1]);
    const torch::Tensor d_qkv = torch::empty({tokens, q_width + 2 * kv_width}, gradients[0].options());
    const auto [d_q_weight, d_k_weight] =
        turn_back(context, 1, rotation, gradients, saved[0], saved[1], d_qkv.narrow(1, 0, q_width),
                  d_qkv.narrow(1, q_width, kv_width), d_qkv.narrow(1, q_width + kv_width, kv_width));
    return {d_qkv, d_q_weight, d_k_weight, torch::Tensor(), torch::Tensor()};
  }
};

gpu::Rows<Bf16> rows_of(const torch::Tensor& matrix) {
  return {bits(matrix), matrix.stride(0)};
}
gpu::Rows<const Bf16> read_rows(const torch::Tensor& matrix) {
  return {bits(matrix), matrix.stride(0)};
}

gpu::Swiglu swiglu_of(const torch::Tensor& gate, const torch::Tensor& up) {
  return {read_rows(gate), read_rows(up), gate.size(0), gate.size(1)};
}

struct GateAndUp {
  torch::Tensor gate, up;
};

GateAndUp halves(const torch::Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  return {gate_up.narrow(1, 0, width), gate_up.narrow(1, width, width)};
}

torch::Tensor product_of(const GateAndUp& in) {
  const torch::Tensor product = torch::empty(in.gate.sizes(), in.gate.options());
  gpu::swiglu(swiglu_of(in.gate, in.up), rows_of(product), current_stream(product.device()));
  return product;
}

// Writes the gradients of gate and up to `out`; product: where it is made again, or undefined.
void swiglu_back(const GateAndUp& in, const torch::Tensor& d_product, const GateAndUp& out,
                 const torch::Tensor& product) {
  gpu::swiglu_backward(swiglu_of(in.gate, in.up), read_rows(d_product), rows_of(out.gate), rows_of(out.up),
                       product.defined() ? rows_of(product) : gpu::Rows<Bf16>(), current_stream(d_product.device()));
}

struct SwigluApart : torch::autograd::Function<SwigluApart> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& gate, const torch::Tensor& up) {
    const GateAndUp in = {gate.contiguous(), up.contiguous()};
    context->save_for_backward({in.gate, in.up});
    return product_of(in);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const GateAndUp out = {torch::empty_like(saved[0]), torch::empty_like(saved[1])};
    swiglu_back({saved[0], saved[1]}, gradients[0].contiguous(), out, torch::Tensor());
    return {out.gate, out.up};
  }
};

struct SwigluJoined : torch::autograd::Function<SwigluJoined> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& gate_up) {
    const torch::Tensor rows = gate_up.contiguous();
    context->save_for_backward({rows});
    return product_of(halves(rows));
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const torch::Tensor rows = context->get_saved_variables()[0];
    const torch::Tensor d_rows = torch::empty_like(rows);
    swiglu_back(halves(rows), gradients[0].contiguous(), halves(d_rows), torch::Tensor());
    return {d_rows};
  }
};

struct SwigluProduct : torch::autograd::Function<SwigluProduct> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& gate_up, const torch::Tensor& weight,
                               int64_t rows_per_product) {
    const torch::Tensor rows = gate_up.contiguous();
    context->save_for_backward({rows, weight});
    return product(product_of(halves(rows)), weight, rows_per_product);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &rows = saved[0], &weight = saved[1];
    const torch::Tensor dy = gradients[0].contiguous();
    const torch::Tensor d_product = dy.mm(weight);
    const torch::Tensor d_rows = torch::empty_like(rows);
    // The product takes the place of its gradient, which each thread has read before.
    swiglu_back(halves(rows), d_product, halves(d_rows), d_product);
    if (!context->needs_input_grad(1)) return {d_rows, torch::Tensor(), torch::Tensor()};
    torch::Tensor main = main_gradient(weight);
    if (!main.defined()) return {d_rows, dy.t().mm(d_product), torch::Tensor()};
    add_product(main, dy, d_product);
    return {d_rows, torch::Tensor(), torch::Tensor()};
  }
};

struct EmbeddingRows : torch::autograd::Function<EmbeddingRows> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& table, const torch::Tensor& ids,
                               const torch::Tensor& gradient_ids) {
    context->save_for_backward({table, gradient_ids});
    return torch::embedding(table, ids);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &table = saved[0], &ids = saved[1];
    const WeightGradient d_table(table, true);
    const torch::Tensor rows = gradients[0].contiguous();
    const auto [sorted, order] = ids.sort(/*stable=*/true, 0, false);
    gpu::EmbeddingGradient work;
    work.rows = bits(rows);
    work.sorted_ids = sorted.data_ptr<int64_t>();
    work.order = order.data_ptr<int64_t>();
    work.table = floats(d_table.sum());
    work.tokens = ids.numel();
    work.width = table.size(1);
    gpu::add_embedding_gradient(work, current_stream(rows.device()));
    return {d_table.for_autograd(), torch::Tensor(), torch::Tensor()};
  }
};

Rotation rotation_of(int64_t head_dim, const HeadNorms& norms, const Rotary::Angles& angles) {
  VIME_CHECK(angles.positions.defined(), "kernels rotate by positions and the table of angles");
  return {norms.q_weight, norms.k_weight, angles.cos, angles.sin, angles.positions, norms.epsilon, head_dim};
}

}  // namespace

bool fused_kernels_fit(torch::Device device, torch::ScalarType dtype) {
  return device.is_cuda() && dtype == torch::kBFloat16;
}

Normed kernel_add_rms_norm(const torch::Tensor& x, const torch::Tensor& delta, const torch::Tensor& weight,
                           double epsilon) {
  const tensor_list found = AddRmsNorm::apply(x, weight, maybe(delta), epsilon);
  return {delta.defined() ? found[1] : x, found[0]};
}

Heads kernel_norm_and_rotate(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int64_t head_dim,
                             const HeadNorms& norms, const Rotary::Angles& angles) {
  const tensor_list found =
      NormAndRotate::apply(q, k, maybe(norms.q_weight), maybe(norms.k_weight), rotation_of(head_dim, norms, angles));
  return {found[0], found[1], v.view({v.size(0), v.size(1) / head_dim, head_dim})};
}

Heads kernel_norm_and_rotate(const torch::Tensor& qkv, int64_t q_width, int64_t head_dim, const HeadNorms& norms,
                             const Rotary::Angles& angles) {
  const tensor_list found = NormAndRotateJoined::apply(qkv, maybe(norms.q_weight), maybe(norms.k_weight), q_width,
                                                       rotation_of(head_dim, norms, angles));
  return {found[0], found[1], found[2]};
}

torch::Tensor kernel_swiglu(const torch::Tensor& gate, const torch::Tensor& up) {
  return SwigluApart::apply(gate, up);
}

torch::Tensor kernel_swiglu(const torch::Tensor& gate_up) {
  return SwigluJoined::apply(gate_up);
}

torch::Tensor kernel_swiglu_product(const torch::Tensor& gate_up, const torch::Tensor& weight,
                                    int64_t rows_per_product) {
  return SwigluProduct::apply(gate_up, weight, rows_per_product);
}

torch::Tensor kernel_embedding_rows(const torch::Tensor& table, const torch::Tensor& ids,
                                    const torch::Tensor& gradient_ids) {
  return EmbeddingRows::apply(table, ids, gradient_ids);
}

}  // namespace vime::model
