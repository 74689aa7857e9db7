// Every kernel against its formula in float64, computed here from the same bf16 inputs. Outputs are poisoned before, so
// that a value nobody wrote is a NaN, and everything runs twice for the same bits.
#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "gpu/buffers.hpp"
#include "gpu/embedding_kernels.hpp"
#include "gpu/norm_kernels.hpp"
#include "gpu/rotary_kernels.hpp"
#include "gpu/swiglu_kernels.hpp"

using namespace vime;
using namespace vime::test;
using gpu::Bf16;

namespace {

size_t at(int64_t index) {
  return static_cast<size_t>(index);
}

struct NormCase {
  int64_t rows, width;
  bool with_delta = true;
};

const std::vector<NormCase> kNorms = {{1, 2560},  {3, 2560},    {2051, 2560}, {700, 1024},        {1, 1},
                                      {5, 7},     {2, 4097},    {9, 8192},    {3, 16384},         {4, 5000},
                                      {1500, 64}, {130, 12288}, {6, 16383},   {1025, 896, false}, {17, 129, false}};

// Sums over up to `terms` products of the size of 1 in float32.
double sum_error(int64_t terms) {
  return 1e-6 * std::sqrt(static_cast<double>(terms)) + 1e-6;
}

}  // namespace

TEST_CASE("add_rms_norm adds, normalises and weights as the formula says, in every width") {
  Random random(1);
  for (const NormCase& norm : kNorms) {
    CAPTURE(norm.rows);
    CAPTURE(norm.width);
    const auto x = random_bf16(random, norm.rows * norm.width);
    const auto delta = random_bf16(random, norm.rows * norm.width, 0.3);
    const auto weight = random_bf16(random, norm.width);
    std::vector<double> sums, normals, inverses;
    for (int64_t row = 0; row < norm.rows; ++row) {
      double squares = 0;
      for (int64_t i = row * norm.width; i < (row + 1) * norm.width; ++i) {
        sums.push_back(wide(narrow(wide(x[at(i)]) + (norm.with_delta ? wide(delta[at(i)]) : 0.0))));
        squares += sums.back() * sums.back();
      }
      inverses.push_back(1 / std::sqrt(squares / static_cast<double>(norm.width) + 1e-6));
      for (int64_t i = 0; i < norm.width; ++i) {
        normals.push_back(sums[at(row * norm.width + i)] * inverses.back() * wide(weight[at(i)]));
      }
    }
    const Array<Bf16> x_there(x), delta_there(delta), weight_there(weight);
    std::vector<std::vector<Bf16>> results;
    for (int turn = 0; turn < 2; ++turn) {
      const Array<Bf16> sum(x.size()), normal(x.size());
      const Array<float> inverse(at(norm.rows));
      gpu::add_rms_norm({x_there.data(), norm.with_delta ? delta_there.data() : nullptr, weight_there.data(),
                         sum.data(), normal.data(), inverse.data(), norm.rows, norm.width, 1e-6f},
                        nullptr);
      results.push_back(normal.read());
      if (norm.with_delta) check_close(sum.read(), sums, 0, 0);
      check_close(results.back(), normals, kRounding, 0);
      check_close(inverse.read(), inverses, 1e-6, 0);
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("a row's norm has the same bits among few rows and among many, and may be added in place") {
  Random random(2);
  for (const int64_t width : {2560, 1024, 8192}) {
    const int64_t rows = 1500;
    const auto x = random_bf16(random, rows * width);
    const auto delta = random_bf16(random, rows * width);
    const Array<Bf16> weight(random_bf16(random, width));
    const auto run = [&](int64_t count) {
      const auto some = [&](const std::vector<Bf16>& all) {
        return std::vector<Bf16>(all.begin(), all.begin() + count * width);
      };
      const Array<Bf16> sum(some(x)), delta_there(some(delta)), normal(at(count * width));
      gpu::add_rms_norm(
          {sum.data(), delta_there.data(), weight.data(), sum.data(), normal.data(), nullptr, count, width, 1e-6f},
          nullptr);
      auto found = normal.read();
      const auto added = sum.read();
      found.insert(found.end(), added.begin(), added.end());
      return found;
    };
    const auto many = run(rows);
    const auto few = run(7);
    for (int64_t i = 0; i < 7 * width; ++i) {
      if (few[at(i)] != many[at(i)] || few[at(7 * width + i)] != many[at(rows * width + i)]) {
        FAIL("differs at ", i);
      }
    }
  }
}

TEST_CASE("the gradients of add_rms_norm are the derivatives, the weight's added to what was there") {
  Random random(3);
  for (const NormCase& norm : kNorms) {
    CAPTURE(norm.rows);
    CAPTURE(norm.width);
    const auto sum = random_bf16(random, norm.rows * norm.width);
    const auto d_normal = random_bf16(random, norm.rows * norm.width);
    const auto d_sum = random_bf16(random, norm.rows * norm.width);
    const auto weight = random_bf16(random, norm.width);
    const auto before = random_floats(random, norm.width);
    std::vector<double> d_x, d_weight = widen(before);
    std::vector<float> inverses;
    for (int64_t row = 0; row < norm.rows; ++row) {
      const int64_t begin = row * norm.width;
      double squares = 0;
      for (int64_t i = 0; i < norm.width; ++i) squares += wide(sum[at(begin + i)]) * wide(sum[at(begin + i)]);
      inverses.push_back(static_cast<float>(1 / std::sqrt(squares / static_cast<double>(norm.width) + 1e-6)));
      const double inverse = inverses.back();
      double mean = 0;
      for (int64_t i = 0; i < norm.width; ++i) {
        const double by_normal = wide(d_normal[at(begin + i)]) * wide(sum[at(begin + i)]) * inverse;
        mean += by_normal * wide(weight[at(i)]) / static_cast<double>(norm.width);
        d_weight[at(i)] += by_normal;
      }
      for (int64_t i = 0; i < norm.width; ++i) {
        d_x.push_back(inverse * (wide(d_normal[at(begin + i)]) * wide(weight[at(i)]) -
                                 wide(sum[at(begin + i)]) * inverse * mean) +
                      (norm.with_delta ? wide(d_sum[at(begin + i)]) : 0.0));
      }
    }
    const Array<Bf16> d_normal_there(d_normal), d_sum_there(d_sum), sum_there(sum), weight_there(weight);
    const Array<float> inverse_there(inverses);
    std::vector<std::vector<Bf16>> results;
    std::vector<std::vector<float>> weights;
    for (int turn = 0; turn < 2; ++turn) {
      const Array<Bf16> found(sum.size());
      const Array<float> found_weight(before), workspace(at(gpu::add_rms_norm_workspace(norm.width)));
      gpu::add_rms_norm_backward(
          {d_normal_there.data(), norm.with_delta ? d_sum_there.data() : nullptr, sum_there.data(), weight_there.data(),
           inverse_there.data(), found.data(), found_weight.data(), workspace.data(), norm.rows, norm.width},
          nullptr);
      results.push_back(found.read());
      weights.push_back(found_weight.read());
      // Where terms of the size of the largest inverse cancel, float32's error of them is left.
      check_close(results.back(), d_x, kRounding, 2e-6 * *std::max_element(inverses.begin(), inverses.end()) + 2e-6);
      check_close(weights.back(), d_weight, 1e-5, sum_error(norm.rows));
    }
    CHECK(results[0] == results[1]);
    CHECK(weights[0] == weights[1]);
  }
}

namespace {

struct RotaryCase {
  int64_t tokens, q_heads, k_heads, head_dim;
  bool norm = true;
  bool fused = true;  // q, k and v side by side in one tensor
};

const std::vector<RotaryCase> kRotary = {{1, 32, 8, 128},
                                         {3001, 4, 1, 128},
                                         {37, 7, 3, 64},
                                         {37, 7, 3, 64, false},
                                         {20, 5, 5, 256},
                                         {11, 3, 2, 32, true, false},
                                         {19, 2, 1, 16, false, false},
                                         {23, 3, 1, 80},
                                         {9, 2, 2, 10, true, false},
                                         {5, 3, 1, 250, false},
                                         {6, 1, 1, 2},
                                         {300, 14, 2, 64, false, false}};

// Inputs of one case and its shape on the device.
struct RotaryInputs {
  RotaryInputs(const RotaryCase& c, Random& random)
      : width((c.q_heads + 2 * c.k_heads) * c.head_dim),
        qkv(random_bf16(random, c.tokens * width)),
        q_weight(random_bf16(random, c.head_dim)),
        k_weight(random_bf16(random, c.head_dim)) {
    const int64_t half = c.head_dim / 2;
    for (int64_t position = 0; position < kPositions; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    for (int64_t i = 0; i < c.tokens; ++i) positions.push_back(static_cast<int64_t>(random() % kPositions));
  }
  static constexpr int64_t kPositions = 100;
  int64_t width;
  std::vector<Bf16> qkv, q_weight, k_weight;  // [tokens, width]
  std::vector<float> cos, sin;
  std::vector<int64_t> positions;
};

// A column range of [tokens, width], as heads.
template <class T>
gpu::Heads<T> heads_at(T* values, int64_t begin, int64_t heads, int64_t width) {
  return {values + begin, heads, width};
}

struct HeadReference {
  std::vector<double> out;       // of one head
  std::vector<double> d_x;       // for `gradient`
  std::vector<double> d_weight;  // added to
};

void reference_of_head(const double* x, const double* gradient, const double* weight, const float* cos,
                       const float* sin, int64_t dim, double epsilon, HeadReference& reference) {
  const int64_t half = dim / 2;
  double squares = 0;
  for (int64_t i = 0; i < dim; ++i) squares += x[i] * x[i];
  const double inverse = weight == nullptr ? 1 : 1 / std::sqrt(squares / static_cast<double>(dim) + epsilon);
  const auto normal = [&](int64_t i) { return weight == nullptr ? x[i] : x[i] * inverse * weight[i]; };
  std::vector<double> turned_back(at(dim));
  reference.out.resize(at(dim));
  for (int64_t i = 0; i < half; ++i) {
    reference.out[at(i)] = normal(i) * cos[i] - normal(half + i) * sin[i];
    reference.out[at(half + i)] = normal(half + i) * cos[i] + normal(i) * sin[i];
    turned_back[at(i)] = gradient[i] * cos[i] + gradient[half + i] * sin[i];
    turned_back[at(half + i)] = gradient[half + i] * cos[i] - gradient[i] * sin[i];
  }
  reference.d_x = turned_back;
  if (weight == nullptr) return;
  double mean = 0;
  for (int64_t i = 0; i < dim; ++i) {
    mean += turned_back[at(i)] * weight[i] * x[i] * inverse / static_cast<double>(dim);
    reference.d_weight[at(i)] += turned_back[at(i)] * x[i] * inverse;
  }
  for (int64_t i = 0; i < dim; ++i) {
    reference.d_x[at(i)] = inverse * (turned_back[at(i)] * weight[i] - x[i] * inverse * mean);
  }
}

}  // namespace

TEST_CASE("norm_and_rotate and its gradients are the formula for every head size, norms or none, fused or apart") {
  Random random(4);
  for (const RotaryCase& c : kRotary) {
    CAPTURE(c.tokens);
    CAPTURE(c.head_dim);
    const RotaryInputs in(c, random);
    const int64_t q_width = c.q_heads * c.head_dim;
    const int64_t k_width = c.k_heads * c.head_dim;
    const auto gradient = random_bf16(random, c.tokens * in.width);  // of q, k and v side by side
    const std::vector<double> x = widen(in.qkv), d = widen(gradient), q_weight = widen(in.q_weight),
                              k_weight = widen(in.k_weight);
    const auto q_before = random_floats(random, c.head_dim);
    const auto k_before = random_floats(random, c.head_dim);
    std::vector<double> out = x, d_in = d;
    HeadReference q_reference, k_reference;
    q_reference.d_weight = widen(q_before);
    k_reference.d_weight = widen(k_before);
    for (int64_t token = 0; token < c.tokens; ++token) {
      const float* cos = in.cos.data() + in.positions[at(token)] * c.head_dim / 2;
      const float* sin = in.sin.data() + in.positions[at(token)] * c.head_dim / 2;
      for (int64_t head = 0; head < c.q_heads + c.k_heads; ++head) {
        const int64_t begin = token * in.width + head * c.head_dim;
        HeadReference& reference = head < c.q_heads ? q_reference : k_reference;
        const double* weight = head < c.q_heads ? q_weight.data() : k_weight.data();
        reference_of_head(x.data() + begin, d.data() + begin, c.norm ? weight : nullptr, cos, sin, c.head_dim, 1e-6,
                          reference);
        std::copy(reference.out.begin(), reference.out.end(), out.begin() + begin);
        std::copy(reference.d_x.begin(), reference.d_x.end(), d_in.begin() + begin);
      }
    }

    const Array<Bf16> qkv(in.qkv), d_out(gradient), q_weight_there(in.q_weight), k_weight_there(in.k_weight);
    const Array<float> cos(in.cos), sin(in.sin);
    const Array<int64_t> positions(in.positions);
    const gpu::RotaryShape shape = {c.tokens,
                                    c.head_dim,
                                    positions.data(),
                                    cos.data(),
                                    sin.data(),
                                    c.norm ? q_weight_there.data() : nullptr,
                                    c.norm ? k_weight_there.data() : nullptr,
                                    1e-6f};
    const auto heads = [&](Bf16* values, int which) {
      const int64_t begin = which == 0 ? 0 : which == 1 ? q_width : q_width + k_width;
      return gpu::Heads<Bf16>{values + begin, which == 0 ? c.q_heads : c.k_heads, in.width};
    };
    const auto const_heads = [&](const Array<Bf16>& from, int which) {
      const gpu::Heads<Bf16> found = heads(from.data(), which);
      return gpu::Heads<const Bf16>{found.values, found.heads, found.stride};
    };
    std::vector<std::vector<Bf16>> outs, gradients;
    std::vector<std::vector<float>> weights;
    for (int turn = 0; turn < 2; ++turn) {
      const Array<Bf16> found(in.qkv);  // v stays as it was
      REQUIRE(cudaMemset2D(found.data(), at(in.width) * 2, 0xff, at(q_width + k_width) * 2, at(c.tokens)) ==
              cudaSuccess);
      gpu::norm_and_rotate(shape, const_heads(qkv, 0), const_heads(qkv, 1), heads(found.data(), 0),
                           heads(found.data(), 1), nullptr);
      outs.push_back(found.read());
      const Array<Bf16> found_d(c.fused ? std::vector<Bf16>(gradient.size(), 0xffff) : gradient);
      const Array<float> d_q_weight(q_before), d_k_weight(k_before),
          workspace(at(gpu::norm_and_rotate_workspace(c.head_dim)));
      gpu::RotaryBackward work;
      work.d_q = const_heads(d_out, 0);
      work.d_k = const_heads(d_out, 1);
      work.q = const_heads(qkv, 0);
      work.k = const_heads(qkv, 1);
      work.d_q_in = heads(found_d.data(), 0);
      work.d_k_in = heads(found_d.data(), 1);
      if (c.fused) {
        work.d_v = const_heads(d_out, 2);
        work.d_v_in = heads(found_d.data(), 2);
      }
      work.d_q_weight = d_q_weight.data();
      work.d_k_weight = d_k_weight.data();
      work.workspace = workspace.data();
      gpu::norm_and_rotate_backward(shape, work, nullptr);
      gradients.push_back(found_d.read());
      weights.push_back(d_q_weight.read());
      weights.push_back(d_k_weight.read());
      check_close(outs.back(), out, kRounding, 2e-6);
      // Short heads can be close to zero as a whole, and their inverses large.
      check_close(gradients.back(), d_in, kRounding, c.head_dim < 16 ? 1e-4 : 4e-6);
      if (!c.norm) continue;
      check_close(weights[at(2 * turn)], q_reference.d_weight, 1e-5, sum_error(c.tokens * c.q_heads));
      check_close(weights[at(2 * turn + 1)], k_reference.d_weight, 1e-5, sum_error(c.tokens * c.k_heads));
    }
    CHECK(outs[0] == outs[1]);
    CHECK(gradients[0] == gradients[1]);
    CHECK(weights[0] == weights[2]);
    CHECK(weights[1] == weights[3]);
  }
}

TEST_CASE("swiglu and its gradients are the formula, from one tensor or two, and the product comes back") {
  struct Case {
    int64_t rows, width;
    bool fused = true;
  };
  Random random(5);
  for (const Case& c : {Case{1, 9728}, Case{130, 512}, Case{33, 1000, false}, Case{7, 129}, Case{3, 1}, Case{1, 5},
                        Case{4, 3072, false}}) {
    CAPTURE(c.rows);
    CAPTURE(c.width);
    // Gates far out too: exp(-x) over- and underflows there.
    auto gate_up = random_bf16(random, c.rows * 2 * c.width, 2.0);
    gate_up[0] = narrow(-200.0);
    if (c.width > 3) {
      gate_up[1] = narrow(200.0);
      gate_up[2] = narrow(-88.0);
    }
    const auto gradient = random_bf16(random, c.rows * c.width);
    std::vector<double> product, d_gate_up(gate_up.size());
    const int64_t stride = c.fused ? 2 * c.width : c.width;
    const int64_t up_begin = c.fused ? c.width : c.rows * c.width;
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t i = 0; i < c.width; ++i) {
        const int64_t gate = row * stride + i;
        const double g = wide(gate_up[at(gate)]), u = wide(gate_up[at(gate + up_begin)]);
        const double d = wide(gradient[at(row * c.width + i)]);
        const double s = 1 / (1 + std::exp(-g));
        product.push_back(g * s * u);
        d_gate_up[at(gate)] = d * u * s * (1 + g * (1 - s));
        d_gate_up[at(gate + up_begin)] = d * g * s;
      }
    }
    const Array<Bf16> in_there(gate_up), gradient_there(gradient);
    const gpu::Swiglu in = {{in_there.data(), stride}, {in_there.data() + up_begin, stride}, c.rows, c.width};
    std::vector<std::vector<Bf16>> results;
    for (int turn = 0; turn < 2; ++turn) {
      const Array<Bf16> out(gradient.size()), again(gradient.size()), d_in(gate_up.size());
      gpu::swiglu(in, {out.data(), c.width}, nullptr);
      gpu::swiglu_backward(in, {gradient_there.data(), c.width}, {d_in.data(), stride},
                           {d_in.data() + up_begin, stride}, {again.data(), c.width}, nullptr);
      // 2e-38 is float32's smallest normal number.
      check_close(out.read(), product, kRounding, 2e-36);
      check_close(d_in.read(), d_gate_up, kRounding, 1e-6);
      CHECK(out.read() == again.read());
      results.push_back(d_in.read());
      const Array<Bf16> in_place(gate_up);
      gpu::swiglu_backward({{in_place.data(), stride}, {in_place.data() + up_begin, stride}, c.rows, c.width},
                           {gradient_there.data(), c.width}, {in_place.data(), stride},
                           {in_place.data() + up_begin, stride}, {}, nullptr);
      results.push_back(in_place.read());
    }
    for (const auto& result : results) CHECK(result == results[0]);
  }
}

TEST_CASE("the gradient of an embedding table is the sum over each id's tokens, other ranks' tokens left out") {
  Random random(7);
  for (const auto& [tokens, width, vocab] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 8, 3}, {500, 64, 40}, {77, 33, 2}, {3000, 2560, 1000}, {900, 16, 1}}) {
    CAPTURE(tokens);
    CAPTURE(width);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int64_t>(random() % at(vocab + 1)) - 1);
    std::vector<int64_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return ids[at(a)] < ids[at(b)]; });
    std::vector<int64_t> sorted;
    for (const int64_t i : order) sorted.push_back(ids[at(i)]);
    const auto rows = random_bf16(random, tokens * width);
    const auto before = random_floats(random, vocab * width);
    std::vector<double> expected = widen(before);
    for (int64_t token = 0; token < tokens; ++token) {
      if (ids[at(token)] < 0) continue;
      for (int64_t i = 0; i < width; ++i) expected[at(ids[at(token)] * width + i)] += wide(rows[at(token * width + i)]);
    }
    const Array<Bf16> rows_there(rows);
    const Array<int64_t> sorted_there(sorted), order_there(order);
    std::vector<std::vector<float>> results;
    for (int turn = 0; turn < 2; ++turn) {
      const Array<float> table(before);
      gpu::add_embedding_gradient(
          {rows_there.data(), sorted_there.data(), order_there.data(), table.data(), tokens, width}, nullptr);
      results.push_back(table.read());
      check_close(results.back(), expected, 1e-6, sum_error(tokens));
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("shapes that the kernels cannot do are an error") {
  gpu::AddRmsNorm norm;
  norm.rows = 1;
  norm.width = gpu::kLargestNormWidth + 1;
  CHECK_THROWS_AS(gpu::add_rms_norm(norm, nullptr), Error);
  gpu::RotaryShape shape;
  shape.tokens = 1;
  for (const int64_t dim : {0, 3, 258}) {
    shape.head_dim = dim;
    CHECK_THROWS_AS(gpu::norm_and_rotate(shape, {}, {}, {}, {}, nullptr), Error);
  }
}
