#include "model/head_chunks.hpp"

#include <torch/autograd.h>
#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "gpu/logprob_kernels.hpp"
#include "model/head.hpp"
#include "model/linear.hpp"
#include "model/main_gradient.hpp"
#include "model/torch_device.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

float* floats(const torch::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

gpu::Logits view_of(const torch::Tensor& logits, const torch::Tensor& targets, const HeadChunks& head) {
  gpu::Logits view;
  view.values = logits.data_ptr();
  view.element = logits.scalar_type() == torch::kFloat32 ? gpu::Element::f32 : gpu::Element::bf16;
  view.rows = logits.size(0);
  view.columns = logits.size(1);
  view.stride = logits.stride(0);
  view.targets = targets.data_ptr<int64_t>();
  view.vocab_begin = head.vocab_begin;
  view.temperature = static_cast<float>(head.temperature);
  return view;
}

void for_each_chunk(int64_t rows, const std::function<void(int64_t begin, int64_t count)>& take) {
  for (int64_t begin = 0; begin < rows; begin += kHeadChunk) take(begin, std::min(kHeadChunk, rows - begin));
}

struct Holder : torch::CustomClassHolder {
  explicit Holder(HeadChunks chunks) : head(std::move(chunks)) {}
  HeadChunks head;  // without rows and weight, which autograd keeps
};

struct ChunkedLogprobs : torch::autograd::Function<ChunkedLogprobs> {
  static tensor_list forward(AutogradContext* context, const torch::Tensor& rows, const torch::Tensor& weight,
                             const c10::intrusive_ptr<Holder>& holder) {
    const HeadChunks& head = holder->head;
    const int64_t count = rows.size(0);
    const int64_t ranks = head.ranks->size();
    const auto options = rows.options().dtype(torch::kFloat32);
    // [chunk: 4 x rows of the chunk], so that the ranks' parts can be gathered in one piece.
    torch::Tensor parts = torch::empty({gpu::kLogprobParts * count}, options);
    for_each_chunk(count, [&](int64_t begin, int64_t size) {
      const torch::Tensor logits = product(rows.narrow(0, begin, size), weight, head.rows_per_product);
      gpu::logprob_parts(view_of(logits, head.targets.narrow(0, begin, size), head),
                         floats(parts) + gpu::kLogprobParts * begin, current_stream(rows.device()));
    });
    const std::vector<torch::Tensor> of_ranks = head.ranks->all_gather(parts);
    torch::Tensor logprobs = torch::empty({count}, options);
    torch::Tensor entropies = torch::empty({count}, options);
    torch::Tensor log_sums = torch::empty({count}, options);
    for_each_chunk(count, [&](int64_t begin, int64_t size) {
      torch::Tensor of_chunk = parts.narrow(0, gpu::kLogprobParts * begin, gpu::kLogprobParts * size);
      if (ranks > 1) {
        tensor_list pieces;
        for (const torch::Tensor& one : of_ranks)
          pieces.push_back(one.narrow(0, gpu::kLogprobParts * begin, gpu::kLogprobParts * size));
        of_chunk = torch::cat(pieces);
      }
      gpu::combine_logprob_parts(floats(of_chunk), ranks, size, floats(logprobs) + begin, floats(entropies) + begin,
                                 floats(log_sums) + begin, current_stream(rows.device()));
    });
    context->set_materialize_grads(false);  // an entropy that is only a figure costs the backward pass nothing
    context->save_for_backward({rows, weight, log_sums, entropies});
    context->saved_data["head"] = c10::IValue::make_capsule(holder);
    return {logprobs, entropies};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &rows = saved[0], &weight = saved[1], &log_sums = saved[2], &entropies = saved[3];
    const HeadChunks& head = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["head"].toCapsule())->head;
    const torch::Tensor d_logprobs = gradients[0].defined() ? gradients[0].contiguous() : torch::zeros_like(log_sums);
    const torch::Tensor d_entropies = gradients[1].defined() ? gradients[1].contiguous() : torch::Tensor();
    torch::Tensor main = main_gradient(weight);
    torch::Tensor d_weight;
    if (!main.defined() && context->needs_input_grad(1)) {
      d_weight = torch::zeros(weight.sizes(), weight.options().dtype(torch::kFloat32));
      main = d_weight;
    }
    torch::Tensor d_rows = torch::empty(rows.sizes(), rows.options());
    for_each_chunk(rows.size(0), [&](int64_t begin, int64_t size) {
      const torch::Tensor of_chunk = rows.narrow(0, begin, size);
      torch::Tensor logits = product(of_chunk, weight, head.rows_per_product);
      gpu::logprob_backward(view_of(logits, head.targets.narrow(0, begin, size), head), floats(log_sums) + begin,
                            d_entropies.defined() ? floats(entropies) + begin : nullptr, floats(d_logprobs) + begin,
                            d_entropies.defined() ? floats(d_entropies) + begin : nullptr,
                            current_stream(rows.device()));
      torch::Tensor out = d_rows.narrow(0, begin, size);
      at::mm_out(out, logits, weight);
      if (main.defined()) add_product(main, logits, of_chunk);
    });
    return {d_rows, d_weight.defined() ? d_weight.to(weight.scalar_type()) : d_weight, torch::Tensor()};
  }
};

}  // namespace

TokenLogprobs chunked_logprobs(const HeadChunks& head, Entropy entropy) {
  VIME_CHECK(head.temperature > 0, "log-probs need a temperature above 0, found " + std::to_string(head.temperature));
  HeadChunks rest = head;
  rest.rows = torch::Tensor();
  rest.weight = torch::Tensor();
  const tensor_list found = ChunkedLogprobs::apply(head.rows, head.weight, c10::make_intrusive<Holder>(rest));
  TokenLogprobs result;
  result.logprobs = found[0];
  if (entropy == Entropy::figure) result.entropy = found[1].detach();
  if (entropy == Entropy::differentiable) result.entropy = found[1];
  return result;
}

}  // namespace vime::model
