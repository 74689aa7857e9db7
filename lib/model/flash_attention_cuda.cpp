// Dao 2023 over packed sequences of any lengths. Masks are aligned at the end: query i of n sees all but the last
// n - 1 - i keys, which is what spans in the middle of a sequence need.
#include "model/flash_attention.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/parallel.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct Plan : torch::CustomClassHolder {
  torch::Tensor query_begins, key_begins;  // int32 [spans + 1]: first row of each, and the end
  int64_t queries = 0, keys = 0;           // of the longest
  torch::Tensor rows;                      // int64 [real queries]: their rows of q; undefined: all, in order
  torch::Tensor key_rows;                  // int64: row of k and v of each key; undefined: all, in order
};

torch::Tensor begins_of(const std::vector<int64_t>& lengths, torch::Device device) {
  std::vector<int32_t> begins = {0};
  for (const int64_t length : lengths) begins.push_back(begins.back() + static_cast<int32_t>(length));
  return torch::tensor(begins, torch::kInt32).to(device);
}

torch::Tensor picked(const torch::Tensor& all, const torch::Tensor& rows) {
  return rows.defined() ? all.index_select(0, rows) : all;
}

// The way back; rows that nothing was picked from get 0. A key is in at most two spans of a rank, so that the order in
// which they are added does not matter.
torch::Tensor put_back(const torch::Tensor& values, const torch::Tensor& rows, const torch::Tensor& like) {
  if (!rows.defined()) return values;
  const torch::Tensor sums = torch::zeros(like.sizes(), like.options().dtype(torch::kFloat32));
  return sums.index_add_(0, rows, values.to(torch::kFloat32)).to(like.scalar_type());
}

struct FlashAttention : torch::autograd::Function<FlashAttention> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const c10::intrusive_ptr<Plan>& plan) {
    auto [out, log_sums, random, unused, mask] =
        at::_flash_attention_forward(picked(q, plan->rows), picked(k, plan->key_rows), picked(v, plan->key_rows),
                                     plan->query_begins, plan->key_begins, plan->queries, plan->keys, 0.0, true, false);
    context->save_for_backward({q, k, v, out, log_sums, random, unused});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return put_back(out, plan->rows, q);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const torch::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    auto [dq, dk, dv] = at::_flash_attention_backward(
        picked(gradients[0].contiguous(), plan->rows), picked(q, plan->rows), picked(k, plan->key_rows),
        picked(v, plan->key_rows), saved[3], saved[4], plan->query_begins, plan->key_begins, plan->queries, plan->keys,
        0.0, true, saved[5], saved[6]);
    return {put_back(dq, plan->rows, q), put_back(dk, plan->key_rows, k), put_back(dv, plan->key_rows, v),
            torch::Tensor()};
  }
};

}  // namespace

bool flash_attention_fits(torch::Device device, torch::ScalarType dtype) {
  return device.is_cuda() && (dtype == torch::kBFloat16 || dtype == torch::kFloat16);
}

Attention flash_packed_attention(const std::vector<int64_t>& lengths, torch::Device device) {
  auto plan = c10::make_intrusive<Plan>();
  plan->query_begins = plan->key_begins = begins_of(lengths, device);
  for (const int64_t length : lengths) plan->queries = plan->keys = std::max(plan->keys, length);
  return [plan](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    return FlashAttention::apply(q, k, v, plan);
  };
}

Attention flash_context_parallel_attention(const std::vector<QuerySpan>& spans, int64_t rows, CollectivesPtr ranks,
                                           torch::Device device) {
  auto plan = c10::make_intrusive<Plan>();
  std::vector<int64_t> queries, keys, query_rows, key_rows;
  for (const QuerySpan& span : spans) {
    queries.push_back(span.count);
    keys.push_back(static_cast<int64_t>(span.keys.size()));
    plan->queries = std::max(plan->queries, queries.back());
    plan->keys = std::max(plan->keys, keys.back());
    for (int64_t t = 0; t < span.count; ++t) query_rows.push_back(span.row + t);
    key_rows.insert(key_rows.end(), span.keys.begin(), span.keys.end());
  }
  plan->query_begins = begins_of(queries, device);
  plan->key_begins = begins_of(keys, device);
  plan->rows = torch::tensor(query_rows, torch::kInt64).to(device);
  plan->key_rows = torch::tensor(key_rows, torch::kInt64).to(device);
  return [plan, rows, ranks](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    VIME_CHECK(q.size(0) == rows, "context-parallel attention over " + std::to_string(rows) + " rows was given " +
                                      std::to_string(q.size(0)));
    const int64_t dim = k.size(2);
    const torch::Tensor both = gather_rows(torch::cat({k, v}, 2), ranks);
    if (plan->queries == 0) return torch::zeros_like(q) + both.sum() * 0;  // in the graph: the way back is collective
    return FlashAttention::apply(q, both.narrow(2, 0, dim), both.narrow(2, dim, dim), plan);
  };
}

}  // namespace vime::model
