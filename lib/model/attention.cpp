// Exact causal attention over packed sequences. Sequences of like length form a bucket and run as one batch; queries
// run in blocks that see only the keys up to their end, and the backward pass computes the probabilities of a block
// again instead of keeping them, so that memory grows with the sequence length and not with its square.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "model/decoder.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kQueryBlock = 512;
// Score elements per head that one batch may hold at a time.
constexpr int64_t kLargestScores = int64_t{1} << 22;

struct Bucket {
  int64_t sequences = 0;
  int64_t length = 0;     // of the longest; shorter ones are padded behind
  torch::Tensor rows;     // int64 [sequences * length]: packed row of each place, any row where it is padding
  torch::Tensor places;   // int64 [real tokens]: places that are no padding; undefined when all are real
  torch::Tensor targets;  // int64 [real tokens]: their packed rows; undefined when all are real
  torch::Tensor padding;  // bool [sequences, 1, length, 1]; undefined when all are real
};

struct Plan : torch::CustomClassHolder {
  std::vector<Bucket> buckets;
  int64_t tokens = 0;
  bool in_order = false;  // one bucket without padding whose places are the packed rows
};

// Upper end of a length's class: 2^k and 1.5 * 2^k from 16 on. Padding within a class costs at most half of the tokens.
int64_t class_of(int64_t length) {
  int64_t end = 16;
  while (end < length) {
    if (end + end / 2 >= length) return end + end / 2;
    end *= 2;
  }
  return end;
}

Bucket make_bucket(const std::vector<int64_t>& starts, const std::vector<int64_t>& lengths,
                   const std::vector<std::size_t>& members) {
  Bucket bucket;
  bucket.sequences = static_cast<int64_t>(members.size());
  for (const std::size_t i : members) bucket.length = std::max(bucket.length, lengths[i]);
  std::vector<int64_t> rows;
  std::vector<int64_t> places;
  std::vector<int64_t> targets;
  for (const std::size_t i : members) {
    for (int64_t t = 0; t < bucket.length; ++t) {
      const bool real = t < lengths[i];
      // Padding lies behind the real tokens, where the causal mask hides it from them; nobody reads its own result.
      rows.push_back(real ? starts[i] + t : starts[i]);
      if (!real) continue;
      places.push_back(static_cast<int64_t>(rows.size()) - 1);
      targets.push_back(rows.back());
    }
  }
  bucket.rows = torch::tensor(rows, torch::kInt64);
  if (places.size() < rows.size()) {
    bucket.places = torch::tensor(places, torch::kInt64);
    bucket.targets = torch::tensor(targets, torch::kInt64);
    bucket.padding = torch::ones({bucket.rows.size(0)}, torch::kBool)
                         .index_fill_(0, bucket.places, false)
                         .view({bucket.sequences, 1, bucket.length, 1});
  }
  return bucket;
}

c10::intrusive_ptr<Plan> make_plan(const std::vector<int64_t>& lengths) {
  auto plan = c10::make_intrusive<Plan>();
  std::vector<int64_t> starts;
  std::map<int64_t, std::vector<std::size_t>> classes;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    VIME_CHECK(lengths[i] >= 0, "sequence of length " + std::to_string(lengths[i]));
    starts.push_back(plan->tokens);
    plan->tokens += lengths[i];
    if (lengths[i] > 0) classes[class_of(lengths[i])].push_back(i);
  }
  for (const auto& [end, members] : classes) {
    const auto batch =
        static_cast<std::size_t>(std::max<int64_t>(1, kLargestScores / (end * std::min(end, kQueryBlock))));
    for (std::size_t i = 0; i < members.size(); i += batch) {
      const auto first = members.begin() + static_cast<std::ptrdiff_t>(i);
      const auto last = members.begin() + static_cast<std::ptrdiff_t>(std::min(members.size(), i + batch));
      plan->buckets.push_back(make_bucket(starts, lengths, {first, last}));
    }
  }
  plan->in_order = plan->buckets.size() == 1 && !plan->buckets[0].places.defined();
  return plan;
}

// [tokens, heads, dim] -> [sequences * kv heads, heads per kv head, length, dim]
torch::Tensor unpack(const torch::Tensor& packed, const Plan& plan, const Bucket& bucket, int64_t kv_heads) {
  const torch::Tensor rows = plan.in_order ? packed : packed.index_select(0, bucket.rows);
  const int64_t group = packed.size(1) / kv_heads;
  return rows.reshape({bucket.sequences, bucket.length, kv_heads, group, packed.size(2)})
      .permute({0, 2, 3, 1, 4})
      .reshape({bucket.sequences * kv_heads, group, bucket.length, packed.size(2)});
}

// The way back, into the bucket's rows of `packed`.
void pack(const torch::Tensor& padded, const Plan& plan, const Bucket& bucket, torch::Tensor& packed) {
  const int64_t kv_heads = padded.size(0) / bucket.sequences;
  const torch::Tensor rows = padded.view({bucket.sequences, kv_heads, padded.size(1), bucket.length, padded.size(3)})
                                 .permute({0, 3, 1, 2, 4})
                                 .reshape({bucket.sequences * bucket.length, packed.size(1), packed.size(2)});
  if (plan.in_order) {
    packed = rows;
  } else if (bucket.places.defined()) {
    packed.index_copy_(0, bucket.targets, rows.index_select(0, bucket.places));
  } else {
    packed.index_copy_(0, bucket.rows, rows);
  }
}

struct Block {
  torch::Tensor q;              // [batch, group * rows, dim]
  torch::Tensor k;              // [batch, keys, dim]
  torch::Tensor v;              // [batch, keys, dim]
  torch::Tensor probabilities;  // [batch, group * rows, keys]
};

// Probabilities of queries begin..end-1 over keys 0..end-1. q: [batch, group, length, dim], k and v: [batch, 1, length,
// dim]
Block make_block(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, int64_t begin, int64_t end) {
  const int64_t batch = q.size(0);
  const int64_t group = q.size(1);
  const int64_t dim = q.size(3);
  const int64_t rows = end - begin;
  Block block;
  block.q = q.narrow(2, begin, rows).reshape({batch, group * rows, dim});
  block.k = k.narrow(2, 0, end).squeeze(1);
  block.v = v.narrow(2, 0, end).squeeze(1);
  torch::Tensor scores = torch::bmm(block.q, block.k.transpose(1, 2)).mul_(1.0 / std::sqrt(static_cast<double>(dim)));
  const torch::Tensor mask =
      torch::full({rows, rows}, -std::numeric_limits<float>::infinity(), scores.options()).triu_(1);
  scores.view({batch, group, rows, end}).narrow(3, begin, rows).add_(mask);
  block.probabilities = scores.softmax(-1, torch::kFloat32).to(q.scalar_type());
  return block;
}

// q, k, v of one bucket, or gradients of them.
struct Triple {
  torch::Tensor q;  // [sequences * kv heads, group, length, dim]
  torch::Tensor k;  // [sequences * kv heads, 1, length, dim]
  torch::Tensor v;
};

torch::Tensor attend(const Triple& in) {
  const int64_t length = in.q.size(2);
  torch::Tensor out = torch::empty(in.q.sizes(), in.q.options());
  for (int64_t begin = 0; begin < length; begin += kQueryBlock) {
    const int64_t end = std::min(length, begin + kQueryBlock);
    const Block block = make_block(in.q, in.k, in.v, begin, end);
    torch::Tensor rows = out.narrow(2, begin, end - begin);
    rows.copy_(torch::bmm(block.probabilities, block.v).view(rows.sizes()));
  }
  return out;
}

// With P = softmax(S), S = scale q k', O = P v: dv = P' dO, dS = P (dP - sum(dP P)) with dP = dO v', dq = scale dS k,
// dk = scale dS' q.
Triple attend_backward(const Triple& in, const torch::Tensor& d_out) {
  const int64_t length = in.q.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(in.q.size(3)));
  Triple d{torch::empty(in.q.sizes(), in.q.options()), torch::zeros(in.k.sizes(), in.k.options()),
           torch::zeros(in.v.sizes(), in.v.options())};
  for (int64_t begin = 0; begin < length; begin += kQueryBlock) {
    const int64_t end = std::min(length, begin + kQueryBlock);
    const Block block = make_block(in.q, in.k, in.v, begin, end);
    const torch::Tensor d_rows = d_out.narrow(2, begin, end - begin).reshape(block.q.sizes());
    d.v.narrow(2, 0, end).squeeze(1).add_(torch::bmm(block.probabilities.transpose(1, 2), d_rows));
    const torch::Tensor weighted = torch::bmm(d_rows, block.v.transpose(1, 2)).mul_(block.probabilities);
    const torch::Tensor d_scores = weighted.addcmul(block.probabilities, weighted.sum(-1, true), -1).mul_(scale);
    torch::Tensor dq_rows = d.q.narrow(2, begin, end - begin);
    dq_rows.copy_(torch::bmm(d_scores, block.k).view(dq_rows.sizes()));
    d.k.narrow(2, 0, end).squeeze(1).add_(torch::bmm(d_scores.transpose(1, 2), block.q));
  }
  return d;
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const c10::intrusive_ptr<Plan>& plan) {
    context->save_for_backward({q, k, v});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    torch::Tensor packed = torch::empty(q.sizes(), q.options());
    for (const Bucket& bucket : plan->buckets)
      pack(attend(unpack_triple(q, k, v, *plan, bucket)), *plan, bucket, packed);
    return packed;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const torch::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const torch::Tensor gradient = gradients[0].contiguous();
    torch::Tensor dq = torch::empty(q.sizes(), q.options());
    torch::Tensor dk = torch::empty(k.sizes(), k.options());
    torch::Tensor dv = torch::empty(v.sizes(), v.options());
    for (const Bucket& bucket : plan->buckets) {
      const Triple in = unpack_triple(q, k, v, *plan, bucket);
      torch::Tensor d_out = unpack(gradient, *plan, bucket, k.size(1));
      if (bucket.padding.defined()) {
        // Padding was given some row's gradient; what it computed was never used.
        d_out = d_out.view({bucket.sequences, -1, bucket.length, q.size(2)})
                    .masked_fill(bucket.padding, 0)
                    .view(in.q.sizes());
      }
      const Triple d = attend_backward(in, d_out);
      pack(d.q, *plan, bucket, dq);
      pack(d.k, *plan, bucket, dk);
      pack(d.v, *plan, bucket, dv);
    }
    return {dq, dk, dv, torch::Tensor()};
  }

 private:
  static Triple unpack_triple(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, const Plan& plan,
                              const Bucket& bucket) {
    return {unpack(q, plan, bucket, k.size(1)), unpack(k, plan, bucket, k.size(1)), unpack(v, plan, bucket, k.size(1))};
  }
};

}  // namespace

Attention packed_attention(std::vector<int64_t> lengths) {
  const c10::intrusive_ptr<Plan> plan = make_plan(lengths);
  return [plan](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    VIME_CHECK(
        q.size(0) == plan->tokens && k.size(0) == plan->tokens && v.size(0) == plan->tokens,
        "packed attention over " + std::to_string(plan->tokens) + " tokens was given " + std::to_string(q.size(0)));
    return PackedAttention::apply(q, k, v, plan);
  };
}

}  // namespace vime::model
