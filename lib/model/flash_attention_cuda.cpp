// Flash attention (Dao 2023) takes packed sequences of any lengths, cuDNN's attention is 1.8 times as fast on Hopper
// but is right for sequences of equal lengths only (its way of packing has no right backward pass in LibTorch 2.11), so
// that long sequences are given to it one by one. Flash attention's masks are aligned at the end: query i of n sees all
// but the last n - 1 - i keys, which is what spans in the middle of a sequence need.
#include "model/flash_attention.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <torch/autograd.h>

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

// Neighbouring sequences that are attended by one call.
struct Run {
  int64_t begin = 0, rows = 0;  // of the packed rows
  int64_t length = 0;           // of the longest sequence
  // By cuDNN, as `sequences` of `padded` rows each; 0: by flash attention.
  int64_t sequences = 0, padded = 0;
  torch::Tensor begins;  // flash attention's, int32 [sequences + 1]
};

struct Runs : torch::CustomClassHolder {
  std::vector<Run> all;
  int64_t rows = 0;
};

constexpr int64_t kShortestDense = 1024;  // below, flash attention is as fast
constexpr int64_t kLargestDenseHead = 128;

// cuDNN makes a plan for every shape, which takes a tenth of a second, so that there are to be few.
int64_t padded_length(int64_t length) {
  int64_t step = 256;
  while (step * 16 < length) step *= 2;
  return (length + step - 1) / step * step;
}

// Rows of a run as cuDNN has them: [sequences, heads, padded, dim]. Behind a sequence's end lie rows of the next one,
// as far as there are any: causal attention hides them from its own, and what comes of them is cut off.
torch::Tensor dense(const torch::Tensor& rows, const Run& run) {
  const int64_t wanted = run.sequences * run.padded;
  torch::Tensor own;
  if (run.begin + wanted <= rows.size(0)) {
    own = rows.narrow(0, run.begin, wanted);
  } else {
    own = torch::constant_pad_nd(rows.narrow(0, run.begin, run.rows), {0, 0, 0, 0, 0, wanted - run.rows});
  }
  return own.view({run.sequences, run.padded, rows.size(1), rows.size(2)}).transpose(1, 2);
}

// The same of gradients, which must be zero behind the end.
torch::Tensor dense_gradient(const torch::Tensor& rows, const Run& run) {
  if (run.padded == run.length) return dense(rows, run);
  const torch::Tensor padded =
      torch::constant_pad_nd(rows.narrow(0, run.begin, run.rows), {0, 0, 0, 0, 0, run.padded - run.rows});
  return padded.unsqueeze(0).transpose(1, 2);
}

// The way back: the run's rows.
torch::Tensor rows_of(const torch::Tensor& dense, const Run& run) {
  return dense.transpose(1, 2)
      .reshape({run.sequences * run.padded, dense.size(1), dense.size(3)})
      .narrow(0, 0, run.rows);
}

// Puts the runs' rows one behind the other; one alone is what it is.
class Collected {
 public:
  Collected(const torch::Tensor& like, size_t runs) : like_(like), alone_(runs == 1) {
    if (!alone_) all_ = torch::empty(like.sizes(), like.options());
  }
  void add(const torch::Tensor& rows, const Run& run) {
    if (alone_) {
      all_ = rows;
    } else {
      all_.narrow(0, run.begin, run.rows).copy_(rows);
    }
  }
  torch::Tensor take() const { return all_.defined() ? all_ : torch::empty(like_.sizes(), like_.options()); }

 private:
  torch::Tensor like_, all_;
  bool alone_;
};

struct PackedRuns : torch::autograd::Function<PackedRuns> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const c10::intrusive_ptr<Runs>& runs) {
    tensor_list saved = {q, k, v};
    Collected out(q, runs->all.size());
    for (const Run& run : runs->all) {
      if (is_dense(run, q)) {
        auto [o, sums, unused_q, unused_k, max_q, max_k, seed, offset, mask] = at::_cudnn_attention_forward(
            dense(q, run), dense(k, run), dense(v, run), {}, {}, {}, run.padded, run.padded, true, 0.0, true, false);
        saved.insert(saved.end(), {o, sums, seed, offset});
        out.add(rows_of(o, run), run);
      } else {
        const torch::Tensor begins = begins_for(run, q.device());
        auto [o, sums, random, unused, mask] = at::_flash_attention_forward(
            part(q, run), part(k, run), part(v, run), begins, begins, run.length, run.length, 0.0, true, false);
        saved.insert(saved.end(), {o, sums, random, unused});
        out.add(o, run);
      }
    }
    context->save_for_backward(saved);
    context->saved_data["runs"] = c10::IValue::make_capsule(runs);
    return out.take();
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto runs = c10::static_intrusive_pointer_cast<Runs>(context->saved_data["runs"].toCapsule());
    const torch::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const torch::Tensor gradient = gradients[0].contiguous();
    Collected dq(q, runs->all.size()), dk(k, runs->all.size()), dv(v, runs->all.size());
    auto kept = saved.begin() + 3;
    for (const Run& run : runs->all) {
      const torch::Tensor &out = kept[0], &sums = kept[1], &first = kept[2], &second = kept[3];
      kept += 4;
      if (is_dense(run, q)) {
        auto [a, b, c] =
            at::_cudnn_attention_backward(dense_gradient(gradient, run), dense(q, run), dense(k, run), dense(v, run),
                                          out, sums, first, second, {}, {}, {}, run.padded, run.padded, 0.0, true);
        dq.add(rows_of(a, run), run);
        dk.add(rows_of(b, run), run);
        dv.add(rows_of(c, run), run);
      } else {
        const torch::Tensor begins = begins_for(run, q.device());
        auto [a, b, c] =
            at::_flash_attention_backward(part(gradient, run), part(q, run), part(k, run), part(v, run), out, sums,
                                          begins, begins, run.length, run.length, 0.0, true, first, second);
        dq.add(a, run);
        dk.add(b, run);
        dv.add(c, run);
      }
    }
    return {dq.take(), dk.take(), dv.take(), torch::Tensor()};
  }

 private:
  static torch::Tensor part(const torch::Tensor& rows, const Run& run) { return rows.narrow(0, run.begin, run.rows); }
  static bool is_dense(const Run& run, const torch::Tensor& q) {
    return run.sequences > 0 && q.size(2) % 8 == 0 && q.size(2) <= kLargestDenseHead;
  }
  // A run that was meant for cuDNN, of heads that it does not take, has none yet.
  static torch::Tensor begins_for(const Run& run, torch::Device device) {
    if (run.begins.defined()) return run.begins;
    return begins_of(std::vector<int64_t>(static_cast<size_t>(run.sequences), run.length), device);
  }
};

}  // namespace

bool flash_attention_fits(torch::Device device, torch::ScalarType dtype) {
  return device.is_cuda() && (dtype == torch::kBFloat16 || dtype == torch::kFloat16);
}

// Runs of sequences are attended one after another: long ones by cuDNN, short ones by flash attention.
Attention flash_packed_attention(const std::vector<int64_t>& lengths, torch::Device device, bool same_bits) {
  const bool hopper = at::cuda::getDeviceProperties(device.index())->major >= 9;
  auto runs = c10::make_intrusive<Runs>();
  for (size_t i = 0; i < lengths.size();) {
    size_t end = i + 1;
    Run run;
    run.begin = runs->rows;
    if (hopper && !same_bits && lengths[i] >= kShortestDense) {
      run.length = lengths[i];
      run.padded = padded_length(run.length);
      // Equal lengths go together where no padding comes between them.
      while (run.padded == run.length && end < lengths.size() && lengths[end] == run.length) ++end;
      run.sequences = static_cast<int64_t>(end - i);
    } else {
      while (end < lengths.size() && (!hopper || same_bits || lengths[end] < kShortestDense)) ++end;
      const std::vector<int64_t> own(lengths.begin() + static_cast<std::ptrdiff_t>(i),
                                     lengths.begin() + static_cast<std::ptrdiff_t>(end));
      run.begins = begins_of(own, device);
      run.length = *std::max_element(own.begin(), own.end());
    }
    for (; i < end; ++i) run.rows += lengths[i];
    runs->rows += run.rows;
    if (run.rows > 0) runs->all.push_back(std::move(run));
  }
  return [runs](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    VIME_CHECK(q.size(0) == runs->rows, "packed attention over " + std::to_string(runs->rows) + " tokens was given " +
                                            std::to_string(q.size(0)));
    return PackedRuns::apply(q, k, v, runs);
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
