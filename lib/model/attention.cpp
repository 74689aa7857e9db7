// Exact causal attention over packed sequences, or over spans of them. Spans of like length form a bucket and run as
// one batch; queries run in blocks that see only the keys up to their end, and the backward pass computes the
// probabilities of a block again instead of keeping them, so that memory grows with the sequence length and not with
// its square.
#include "model/attention.hpp"

#include <torch/autograd.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "model/flash_attention.hpp"
#include "model/parallel.hpp"

namespace vime::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kQueryBlock = 512;
// Score elements per head that one batch may hold at a time.
constexpr int64_t kLargestScores = int64_t{1} << 22;

struct Bucket {
  int64_t spans = 0;
  int64_t length = 0;         // queries of the longest; shorter ones are padded behind
  int64_t keys = 0;           // keys of the longest
  torch::Tensor rows;         // int64 [spans * length]: row of q of each place, any row where it is padding
  torch::Tensor key_rows;     // int64 [spans * keys]: row of k and v of each place, any row where it is padding
  torch::Tensor places;       // int64 [real queries]: places that are no padding; undefined when all are real
  torch::Tensor targets;      // int64 [real queries]: their rows of q; undefined when all are real
  torch::Tensor padding;      // bool [spans, 1, length, 1]; undefined when all are real
  torch::Tensor positions;    // int64 [spans]: of the first query among the keys; undefined when all are the same
  int64_t low = 0, high = 0;  // smallest and largest of the positions
};

struct Plan : torch::CustomClassHolder {
  std::vector<Bucket> buckets;
  int64_t rows = 0;       // of q
  int64_t key_rows = 0;   // of k and v
  bool covers = true;     // every row of q is in a span, and every row of k is the key of one span
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

Bucket make_bucket(const std::vector<QuerySpan>& spans, const std::vector<std::size_t>& members, torch::Device device) {
  Bucket bucket;
  bucket.spans = static_cast<int64_t>(members.size());
  bucket.low = spans[members.front()].position;
  for (const std::size_t i : members) {
    bucket.length = std::max(bucket.length, spans[i].count);
    bucket.keys = std::max(bucket.keys, static_cast<int64_t>(spans[i].keys.size()));
    bucket.low = std::min(bucket.low, spans[i].position);
    bucket.high = std::max(bucket.high, spans[i].position);
  }
  std::vector<int64_t> rows, key_rows, places, targets, positions;
  for (const std::size_t i : members) {
    const QuerySpan& span = spans[i];
    positions.push_back(span.position);
    for (int64_t t = 0; t < bucket.length; ++t) {
      const bool real = t < span.count;
      rows.push_back(real ? span.row + t : span.row);
      if (!real) continue;
      places.push_back(static_cast<int64_t>(rows.size()) - 1);
      targets.push_back(rows.back());
    }
    // Padding lies behind the real keys, where the causal mask hides it from the real queries; nobody reads what padded
    // queries compute.
    for (int64_t t = 0; t < bucket.keys; ++t) {
      key_rows.push_back(span.keys[t < static_cast<int64_t>(span.keys.size()) ? static_cast<std::size_t>(t) : 0]);
    }
  }
  bucket.rows = torch::tensor(rows, torch::kInt64);
  bucket.key_rows = torch::tensor(key_rows, torch::kInt64);
  if (bucket.low < bucket.high) bucket.positions = torch::tensor(positions, torch::kInt64);
  if (places.size() < rows.size()) {
    bucket.places = torch::tensor(places, torch::kInt64);
    bucket.targets = torch::tensor(targets, torch::kInt64);
    bucket.padding = torch::ones({bucket.rows.size(0)}, torch::kBool)
                         .index_fill_(0, bucket.places, false)
                         .view({bucket.spans, 1, bucket.length, 1});
  }
  for (torch::Tensor* tensor :
       {&bucket.rows, &bucket.key_rows, &bucket.places, &bucket.targets, &bucket.padding, &bucket.positions}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return bucket;
}

c10::intrusive_ptr<Plan> make_plan(const std::vector<QuerySpan>& spans, int64_t rows, int64_t key_rows,
                                   torch::Device device) {
  auto plan = c10::make_intrusive<Plan>();
  plan->rows = rows;
  plan->key_rows = key_rows;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::size_t>> classes;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto keys = static_cast<int64_t>(spans[i].keys.size());
    VIME_CHECK(spans[i].count >= 0 && keys == spans[i].position + spans[i].count, "a key for each position of a span");
    if (spans[i].count > 0) classes[{class_of(spans[i].count), class_of(keys)}].push_back(i);
  }
  for (const auto& [end, members] : classes) {
    const auto batch = static_cast<std::size_t>(
        std::max<int64_t>(1, kLargestScores / (end.second * std::min(end.first, kQueryBlock))));
    for (std::size_t i = 0; i < members.size(); i += batch) {
      const auto first = members.begin() + static_cast<std::ptrdiff_t>(i);
      const auto last = members.begin() + static_cast<std::ptrdiff_t>(std::min(members.size(), i + batch));
      plan->buckets.push_back(make_bucket(spans, {first, last}, device));
    }
  }
  return plan;
}

// [rows, heads, dim] -> [spans * kv heads, heads per kv head, length, dim]; index: int64 [spans * length]
torch::Tensor unpack(const torch::Tensor& packed, const torch::Tensor& index, const Plan& plan, const Bucket& bucket,
                     int64_t kv_heads) {
  const torch::Tensor rows = plan.in_order ? packed : packed.index_select(0, index);
  const int64_t group = packed.size(1) / kv_heads;
  const int64_t length = rows.size(0) / bucket.spans;
  return rows.reshape({bucket.spans, length, kv_heads, group, packed.size(2)})
      .permute({0, 2, 3, 1, 4})
      .reshape({bucket.spans * kv_heads, group, length, packed.size(2)});
}

// [spans * kv heads, heads per kv head, length, dim] -> [spans * length, heads, dim]
torch::Tensor rows_of(const torch::Tensor& padded, const Bucket& bucket) {
  const int64_t kv_heads = padded.size(0) / bucket.spans;
  return padded.view({bucket.spans, kv_heads, padded.size(1), padded.size(2), padded.size(3)})
      .permute({0, 3, 1, 2, 4})
      .reshape({bucket.spans * padded.size(2), kv_heads * padded.size(1), padded.size(3)});
}

// The way back, into the bucket's rows of `packed`.
void pack(const torch::Tensor& padded, const Plan& plan, const Bucket& bucket, torch::Tensor& packed) {
  const torch::Tensor rows = rows_of(padded, bucket);
  if (plan.in_order) {
    packed = rows;
  } else if (bucket.places.defined()) {
    packed.index_copy_(0, bucket.targets, rows.index_select(0, bucket.places));
  } else {
    packed.index_copy_(0, bucket.rows, rows);
  }
}

// Gradients of keys or values. A key that several spans see gets the sum; padding has gradient 0.
void pack_keys(const torch::Tensor& padded, const Plan& plan, const Bucket& bucket, torch::Tensor& packed) {
  if (plan.covers) return pack(padded, plan, bucket, packed);
  packed.index_add_(0, bucket.key_rows, rows_of(padded, bucket));
}

struct Block {
  int64_t keys = 0;
  torch::Tensor q;              // [batch, group * rows, dim]
  torch::Tensor k;              // [batch, keys, dim]
  torch::Tensor v;              // [batch, keys, dim]
  torch::Tensor probabilities;  // [batch, group * rows, keys]
};

// -infinity where a key lies behind the query, 0 elsewhere, for queries begin..end-1 and keys from low + begin on.
// [1 or spans, 1, 1, queries, keys]
torch::Tensor causal_mask(const Bucket& bucket, int64_t begin, int64_t end, const torch::TensorOptions& options) {
  const int64_t rows = end - begin;
  const float hidden = -std::numeric_limits<float>::infinity();
  if (!bucket.positions.defined()) return torch::full({1, 1, 1, rows, rows}, hidden, options).triu_(1);
  const int64_t first = bucket.low + begin;
  const int64_t columns = std::min(bucket.keys, bucket.high + end) - first;
  const torch::TensorOptions whole = bucket.positions.options();
  const torch::Tensor query = bucket.positions.view({-1, 1, 1, 1, 1}) + torch::arange(begin, end, whole).view({-1, 1});
  const torch::Tensor behind = torch::arange(first, first + columns, whole) > query;
  return torch::zeros(behind.sizes(), options).masked_fill_(behind, hidden);
}

// Probabilities of queries begin..end-1 over all keys that one of them may see. q: [batch, group, length, dim], k and
// v: [batch, 1, keys, dim]
Block make_block(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, const Bucket& bucket,
                 int64_t begin, int64_t end) {
  const int64_t batch = q.size(0);
  const int64_t group = q.size(1);
  const int64_t dim = q.size(3);
  const int64_t rows = end - begin;
  Block block;
  block.keys = std::min(bucket.keys, bucket.high + end);
  block.q = q.narrow(2, begin, rows).reshape({batch, group * rows, dim});
  block.k = k.narrow(2, 0, block.keys).squeeze(1);
  block.v = v.narrow(2, 0, block.keys).squeeze(1);
  torch::Tensor scores = torch::bmm(block.q, block.k.transpose(1, 2)).mul_(1.0 / std::sqrt(static_cast<double>(dim)));
  const int64_t first = bucket.low + begin;
  scores.view({bucket.spans, batch / bucket.spans, group, rows, block.keys})
      .narrow(4, first, block.keys - first)
      .add_(causal_mask(bucket, begin, end, scores.options()));
  block.probabilities = scores.softmax(-1, torch::kFloat32).to(q.scalar_type());
  return block;
}

// q, k, v of one bucket, or gradients of them.
struct Triple {
  torch::Tensor q;  // [spans * kv heads, group, length, dim]
  torch::Tensor k;  // [spans * kv heads, 1, keys, dim]
  torch::Tensor v;
};

torch::Tensor attend(const Triple& in, const Bucket& bucket) {
  const int64_t length = in.q.size(2);
  torch::Tensor out = torch::empty(in.q.sizes(), in.q.options());
  for (int64_t begin = 0; begin < length; begin += kQueryBlock) {
    const int64_t end = std::min(length, begin + kQueryBlock);
    const Block block = make_block(in.q, in.k, in.v, bucket, begin, end);
    torch::Tensor rows = out.narrow(2, begin, end - begin);
    rows.copy_(torch::bmm(block.probabilities, block.v).view(rows.sizes()));
  }
  return out;
}

// With P = softmax(S), S = scale q k', O = P v: dv = P' dO, dS = P (dP - sum(dP P)) with dP = dO v', dq = scale dS k,
// dk = scale dS' q.
Triple attend_backward(const Triple& in, const torch::Tensor& d_out, const Bucket& bucket) {
  const int64_t length = in.q.size(2);
  const double scale = 1.0 / std::sqrt(static_cast<double>(in.q.size(3)));
  Triple d{torch::empty(in.q.sizes(), in.q.options()), torch::zeros(in.k.sizes(), in.k.options()),
           torch::zeros(in.v.sizes(), in.v.options())};
  for (int64_t begin = 0; begin < length; begin += kQueryBlock) {
    const int64_t end = std::min(length, begin + kQueryBlock);
    const Block block = make_block(in.q, in.k, in.v, bucket, begin, end);
    const torch::Tensor d_rows = d_out.narrow(2, begin, end - begin).reshape(block.q.sizes());
    d.v.narrow(2, 0, block.keys).squeeze(1).add_(torch::bmm(block.probabilities.transpose(1, 2), d_rows));
    const torch::Tensor weighted = torch::bmm(d_rows, block.v.transpose(1, 2)).mul_(block.probabilities);
    const torch::Tensor d_scores = weighted.addcmul(block.probabilities, weighted.sum(-1, true), -1).mul_(scale);
    torch::Tensor dq_rows = d.q.narrow(2, begin, end - begin);
    dq_rows.copy_(torch::bmm(d_scores, block.k).view(dq_rows.sizes()));
    d.k.narrow(2, 0, block.keys).squeeze(1).add_(torch::bmm(d_scores.transpose(1, 2), block.q));
  }
  return d;
}

struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& q, const torch::Tensor& k,
                               const torch::Tensor& v, const c10::intrusive_ptr<Plan>& plan) {
    context->save_for_backward({q, k, v});
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    torch::Tensor packed = space_like(q, *plan);
    for (const Bucket& bucket : plan->buckets)
      pack(attend(unpack_triple(q, k, v, *plan, bucket), bucket), *plan, bucket, packed);
    return packed;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(context->saved_data["plan"].toCapsule());
    const torch::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const torch::Tensor gradient = gradients[0].contiguous();
    torch::Tensor dq = space_like(q, *plan);
    torch::Tensor dk = space_like(k, *plan);
    torch::Tensor dv = space_like(v, *plan);
    for (const Bucket& bucket : plan->buckets) {
      const Triple in = unpack_triple(q, k, v, *plan, bucket);
      torch::Tensor d_out = unpack(gradient, bucket.rows, *plan, bucket, k.size(1));
      if (bucket.padding.defined()) {
        // Padding was given some row's gradient; what it computed was never used.
        d_out =
            d_out.view({bucket.spans, -1, bucket.length, q.size(2)}).masked_fill(bucket.padding, 0).view(in.q.sizes());
      }
      const Triple d = attend_backward(in, d_out, bucket);
      pack(d.q, *plan, bucket, dq);
      pack_keys(d.k, *plan, bucket, dk);
      pack_keys(d.v, *plan, bucket, dv);
    }
    return {dq, dk, dv, torch::Tensor()};
  }

 private:
  static Triple unpack_triple(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v, const Plan& plan,
                              const Bucket& bucket) {
    return {unpack(q, bucket.rows, plan, bucket, k.size(1)), unpack(k, bucket.key_rows, plan, bucket, k.size(1)),
            unpack(v, bucket.key_rows, plan, bucket, k.size(1))};
  }
  // What the buckets write: all of it, or else the rest is 0.
  static torch::Tensor space_like(const torch::Tensor& rows, const Plan& plan) {
    return plan.covers ? torch::empty(rows.sizes(), rows.options()) : torch::zeros(rows.sizes(), rows.options());
  }
};

}  // namespace

Attention packed_attention(std::vector<int64_t> lengths, torch::Device device, torch::ScalarType dtype,
                           bool same_bits) {
  if (flash_attention_fits(device, dtype)) return flash_packed_attention(lengths, device, same_bits);
  std::vector<QuerySpan> spans;
  int64_t tokens = 0;
  for (const int64_t length : lengths) {
    VIME_CHECK(length >= 0, "sequence of length " + std::to_string(length));
    QuerySpan span{tokens, length, 0, std::vector<int64_t>(static_cast<std::size_t>(length))};
    std::iota(span.keys.begin(), span.keys.end(), tokens);
    spans.push_back(std::move(span));
    tokens += length;
  }
  const c10::intrusive_ptr<Plan> plan = make_plan(spans, tokens, tokens, device);
  plan->in_order = plan->buckets.size() == 1 && !plan->buckets[0].places.defined();
  return [plan](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    VIME_CHECK(
        q.size(0) == plan->rows && k.size(0) == plan->rows && v.size(0) == plan->rows,
        "packed attention over " + std::to_string(plan->rows) + " tokens was given " + std::to_string(q.size(0)));
    return PackedAttention::apply(q, k, v, plan);
  };
}

Attention context_parallel_attention(const std::vector<QuerySpan>& spans, int64_t rows, CollectivesPtr ranks,
                                     torch::Device device, torch::ScalarType dtype) {
  if (flash_attention_fits(device, dtype)) return flash_context_parallel_attention(spans, rows, ranks, device);
  const c10::intrusive_ptr<Plan> plan = make_plan(spans, rows, rows * ranks->size(), device);
  plan->covers = false;
  return [plan, ranks](int, const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    VIME_CHECK(q.size(0) == plan->rows && k.size(0) == plan->rows && v.size(0) == plan->rows,
               "context-parallel attention over " + std::to_string(plan->rows) + " rows was given " +
                   std::to_string(q.size(0)));
    const int64_t dim = k.size(2);
    const torch::Tensor both = gather_rows(torch::cat({k, v}, 2), ranks);
    return PackedAttention::apply(q, both.narrow(2, 0, dim), both.narrow(2, dim, dim), plan);
  };
}

}  // namespace vime::model
