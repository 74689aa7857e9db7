// A warp takes a token: a group of lanes a head, each lane the same pairs of every head it comes to, so that cosines,
// sines and weights are read once. A pair is element i and element i + head_dim / 2.
#include "gpu/rotary_kernels.hpp"

#include <algorithm>
#include <type_traits>

#include "base/error.hpp"
#include "gpu/check.hpp"
#include "gpu/column_sums.cuh"
#include "gpu/vectors.cuh"

namespace vime::gpu {
namespace {

constexpr int kWarps = 8;                // of a block
constexpr int64_t kPartialBlocks = 396;  // of the backward pass with norms, each with partial sums for both weights

// Four neighbouring pairs a lane, head_dim = 8 * lanes. Eight would need fewer loads, but so many registers that fewer
// of them are under way.
template <int kLanesOfHead>
struct PackedPairs {
  static constexpr bool kPacks = true;
  static constexpr int kLanes = kLanesOfHead;
  static constexpr int kPairs = 4;
  struct Raw {
    uint2 first, second;
  };
  static __device__ int pair(int lane, int i) { return lane * kPairs + i; }
  static __device__ Raw load(const Bf16* head, int lane, int half) {
    return {*reinterpret_cast<const uint2*>(head + lane * kPairs),
            *reinterpret_cast<const uint2*>(head + half + lane * kPairs)};
  }
  static __device__ void widen(const uint2& raw, float (&values)[kPairs]) {
    values[0] = low_half(raw.x);
    values[1] = high_half(raw.x);
    values[2] = low_half(raw.y);
    values[3] = high_half(raw.y);
  }
  static __device__ void widen(const Raw& raw, float (&first)[kPairs], float (&second)[kPairs]) {
    widen(raw.first, first);
    widen(raw.second, second);
  }
  static __device__ void store(Bf16* head, int lane, int half, const float (&first)[kPairs],
                               const float (&second)[kPairs]) {
    *reinterpret_cast<uint2*>(head + lane * kPairs) = {rounded(first[0], first[1]), rounded(first[2], first[3])};
    *reinterpret_cast<uint2*>(head + half + lane * kPairs) = {rounded(second[0], second[1]),
                                                              rounded(second[2], second[3])};
  }
  static __device__ void load_table(const float* row, int lane, int, float (&values)[kPairs]) {
    const float4 four = *reinterpret_cast<const float4*>(row + lane * kPairs);
    values[0] = four.x;
    values[1] = four.y;
    values[2] = four.z;
    values[3] = four.w;
  }
};

// Any even head_dim, and rows that begin anywhere: a warp a head, every 32nd pair a lane.
struct SinglePairs {
  static constexpr bool kPacks = false;
  static constexpr int kLanes = kWarp;
  static constexpr int kPairs = kLargestHeadDim / 2 / kWarp;
  struct Raw {
    Bf16 first[kPairs], second[kPairs];
  };
  static __device__ int pair(int lane, int i) { return lane + i * kWarp; }
  static __device__ Raw load(const Bf16* head, int lane, int half) {
    Raw raw = {};
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (pair(lane, i) >= half) continue;
      raw.first[i] = head[pair(lane, i)];
      raw.second[i] = head[half + pair(lane, i)];
    }
    return raw;
  }
  static __device__ void widen(const Raw& raw, float (&first)[kPairs], float (&second)[kPairs]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      first[i] = value_of(raw.first[i]);
      second[i] = value_of(raw.second[i]);
    }
  }
  static __device__ void store(Bf16* head, int lane, int half, const float (&first)[kPairs],
                               const float (&second)[kPairs]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (pair(lane, i) >= half) continue;
      head[pair(lane, i)] = rounded(first[i]);
      head[half + pair(lane, i)] = rounded(second[i]);
    }
  }
  static __device__ void load_table(const float* row, int lane, int half, float (&values)[kPairs]) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) values[i] = pair(lane, i) < half ? row[pair(lane, i)] : 0.0f;
  }
};

// The lane's cosines and sines of one token.
template <class Pairs>
struct Turn {
  float cos[Pairs::kPairs], sin[Pairs::kPairs];

  __device__ Turn(const RotaryShape& shape, int64_t token, int lane) {
    const int half = static_cast<int>(shape.head_dim) / 2;
    const int64_t row = shape.positions[token] * half;
    Pairs::load_table(shape.cos + row, lane, half, cos);
    Pairs::load_table(shape.sin + row, lane, half, sin);
  }
};

template <class Pairs>
__device__ float inverse_root(const RotaryShape& shape, float squares) {
  return rsqrtf(squares / static_cast<float>(shape.head_dim) + shape.epsilon);
}

// The heads of one token that this lane's group comes to, kUnroll at a time so that many loads are under way.
template <class Pairs, int kUnroll, bool kNorm>
__device__ void rotate_heads(const RotaryShape& shape, const Turn<Pairs>& turn, const Bf16* weight,
                             const Heads<const Bf16>& in, const Heads<Bf16>& out, int64_t token) {
  constexpr int kGroups = kWarp / Pairs::kLanes;
  const int lane = static_cast<int>(threadIdx.x) % Pairs::kLanes;
  const int group = static_cast<int>(threadIdx.x) % kWarp / Pairs::kLanes;
  const int dim = static_cast<int>(shape.head_dim);
  const int half = dim / 2;
  const int heads = static_cast<int>(in.heads);
  const Bf16* from = in.values + token * in.stride;
  Bf16* to = out.values + token * out.stride;
  typename Pairs::Raw raw_weight = {};
  if constexpr (kNorm) raw_weight = Pairs::load(weight, lane, half);
  for (int begin = 0; begin < heads; begin += kGroups * kUnroll) {
    typename Pairs::Raw raw[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int head = begin + u * kGroups + group;
      raw[u] = Pairs::load(from + static_cast<int64_t>(min(head, heads - 1)) * dim, lane, half);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int head = begin + u * kGroups + group;
      float first[Pairs::kPairs], second[Pairs::kPairs];
      Pairs::widen(raw[u], first, second);
      if constexpr (kNorm) {
        float first_weight[Pairs::kPairs], second_weight[Pairs::kPairs];
        Pairs::widen(raw_weight, first_weight, second_weight);
        float squares = 0;
#pragma unroll
        for (int i = 0; i < Pairs::kPairs; ++i) squares += first[i] * first[i] + second[i] * second[i];
        const float inverse = inverse_root<Pairs>(shape, sum_over_lanes<Pairs::kLanes>(squares));
#pragma unroll
        for (int i = 0; i < Pairs::kPairs; ++i) {
          first[i] *= inverse * first_weight[i];
          second[i] *= inverse * second_weight[i];
        }
      }
#pragma unroll
      for (int i = 0; i < Pairs::kPairs; ++i) {
        const float a = first[i];
        const float b = second[i];
        first[i] = a * turn.cos[i] - b * turn.sin[i];
        second[i] = b * turn.cos[i] + a * turn.sin[i];
      }
      if (head < heads) Pairs::store(to + static_cast<int64_t>(head) * dim, lane, half, first, second);
    }
  }
}

template <class Pairs, int kUnroll, bool kNorm>
__global__ void __launch_bounds__(kWarps* kWarp)
    forward(RotaryShape shape, Heads<const Bf16> q, Heads<const Bf16> k, Heads<Bf16> q_out, Heads<Bf16> k_out) {
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= shape.tokens) return;
  const Turn<Pairs> turn(shape, token, static_cast<int>(threadIdx.x) % Pairs::kLanes);
  rotate_heads<Pairs, kUnroll, kNorm>(shape, turn, shape.q_weight, q, q_out, token);
  rotate_heads<Pairs, kUnroll, kNorm>(shape, turn, shape.k_weight, k, k_out, token);
}

// With n = x * inverse and g = the gradient turned back: dx = inverse * (g w - n mean(g w n)), dw = sum of g n.
template <class Pairs, int kUnroll, bool kNorm>
__device__ void turn_back(const RotaryShape& shape, const Turn<Pairs>& turn, const typename Pairs::Raw& raw_weight,
                          const Heads<const Bf16>& gradient, const Heads<const Bf16>& x, const Heads<Bf16>& out,
                          int64_t token, float (&first_sums)[Pairs::kPairs], float (&second_sums)[Pairs::kPairs]) {
  constexpr int kGroups = kWarp / Pairs::kLanes;
  const int lane = static_cast<int>(threadIdx.x) % Pairs::kLanes;
  const int group = static_cast<int>(threadIdx.x) % kWarp / Pairs::kLanes;
  const int dim = static_cast<int>(shape.head_dim);
  const int half = dim / 2;
  const int heads = static_cast<int>(gradient.heads);
  for (int begin = 0; begin < heads; begin += kGroups * kUnroll) {
    typename Pairs::Raw raw[kUnroll], raw_x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int head = min(begin + u * kGroups + group, heads - 1);
      raw[u] = Pairs::load(gradient.values + token * gradient.stride + static_cast<int64_t>(head) * dim, lane, half);
      if constexpr (kNorm) {
        raw_x[u] = Pairs::load(x.values + token * x.stride + static_cast<int64_t>(head) * dim, lane, half);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int head = begin + u * kGroups + group;
      float first[Pairs::kPairs], second[Pairs::kPairs];
      Pairs::widen(raw[u], first, second);
#pragma unroll
      for (int i = 0; i < Pairs::kPairs; ++i) {
        const float a = first[i];
        const float b = second[i];
        first[i] = a * turn.cos[i] + b * turn.sin[i];
        second[i] = b * turn.cos[i] - a * turn.sin[i];
      }
      if constexpr (kNorm) {
        float first_x[Pairs::kPairs], second_x[Pairs::kPairs];
        float first_weight[Pairs::kPairs], second_weight[Pairs::kPairs];
        Pairs::widen(raw_x[u], first_x, second_x);
        Pairs::widen(raw_weight, first_weight, second_weight);
        float squares = 0, dot = 0;
#pragma unroll
        for (int i = 0; i < Pairs::kPairs; ++i) {
          squares += first_x[i] * first_x[i] + second_x[i] * second_x[i];
          dot += first[i] * first_weight[i] * first_x[i] + second[i] * second_weight[i] * second_x[i];
        }
        const float inverse = inverse_root<Pairs>(shape, sum_over_lanes<Pairs::kLanes>(squares));
        const float mean = sum_over_lanes<Pairs::kLanes>(dot) * inverse / static_cast<float>(dim);
        const float real = head < heads ? inverse : 0.0f;
#pragma unroll
        for (int i = 0; i < Pairs::kPairs; ++i) {
          first_sums[i] += first[i] * (first_x[i] * real);
          second_sums[i] += second[i] * (second_x[i] * real);
          first[i] = inverse * (first[i] * first_weight[i] - first_x[i] * inverse * mean);
          second[i] = inverse * (second[i] * second_weight[i] - second_x[i] * inverse * mean);
        }
      }
      if (head >= heads) continue;
      Pairs::store(out.values + token * out.stride + static_cast<int64_t>(head) * dim, lane, half, first, second);
    }
  }
}

// Adds up what the lanes of a block have summed of one weight's gradient and leaves it at partial[head_dim].
template <class Pairs>
__device__ void leave_partial(const RotaryShape& shape, const float (&first_sums)[Pairs::kPairs],
                              const float (&second_sums)[Pairs::kPairs], float* partial) {
  constexpr int kGroups = kWarps * kWarp / Pairs::kLanes;
  __shared__ float sums[kGroups][2 * Pairs::kPairs * Pairs::kLanes];
  const int lane = static_cast<int>(threadIdx.x) % Pairs::kLanes;
  const int group = static_cast<int>(threadIdx.x) / Pairs::kLanes;
  const int half = static_cast<int>(shape.head_dim) / 2;
#pragma unroll
  for (int i = 0; i < Pairs::kPairs; ++i) {
    if (Pairs::pair(lane, i) >= half) continue;
    sums[group][Pairs::pair(lane, i)] = first_sums[i];
    sums[group][half + Pairs::pair(lane, i)] = second_sums[i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * half; i += kWarps * kWarp) {
    float sum = 0;
    for (int g = 0; g < kGroups; ++g) sum += sums[g][i];
    partial[i] = sum;
  }
  __syncthreads();
}

template <class Pairs, int kUnroll, bool kNorm>
__device__ void backward_of(const RotaryShape& shape, const Bf16* weight, const Heads<const Bf16>& gradient,
                            const Heads<const Bf16>& x, const Heads<Bf16>& out, float* partial) {
  const int lane = static_cast<int>(threadIdx.x) % Pairs::kLanes;
  float first_sums[Pairs::kPairs] = {};
  float second_sums[Pairs::kPairs] = {};
  typename Pairs::Raw raw_weight = {};
  if constexpr (kNorm) raw_weight = Pairs::load(weight, lane, static_cast<int>(shape.head_dim) / 2);
  for (int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; token < shape.tokens;
       token += int64_t{gridDim.x} * kWarps) {
    const Turn<Pairs> turn(shape, token, lane);
    turn_back<Pairs, kUnroll, kNorm>(shape, turn, raw_weight, gradient, x, out, token, first_sums, second_sums);
  }
  if constexpr (kNorm) leave_partial<Pairs>(shape, first_sums, second_sums, partial);
}

__device__ void copy_heads(int64_t token, int64_t head_dim, bool packs, const Heads<const Bf16>& from,
                           const Heads<Bf16>& to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int width = static_cast<int>(from.heads * head_dim);
  const Bf16* source = from.values + token * from.stride;
  Bf16* target = to.values + token * to.stride;
  if (packs) {
#pragma unroll 4
    for (int i = lane; i < width / kPack; i += kWarp) {
      reinterpret_cast<Pack*>(target)[i] = reinterpret_cast<const Pack*>(source)[i];
    }
  } else {
    for (int i = lane; i < width; i += kWarp) target[i] = source[i];
  }
}

template <class Pairs, int kUnroll, bool kNorm>
__global__ void __launch_bounds__(kWarps* kWarp, 3) backward(RotaryShape shape, RotaryBackward work) {
  float* partial = kNorm ? work.workspace + int64_t{blockIdx.x} * 2 * shape.head_dim : nullptr;
  backward_of<Pairs, kUnroll, kNorm>(shape, shape.q_weight, work.d_q, work.q, work.d_q_in, partial);
  backward_of<Pairs, kUnroll, kNorm>(shape, shape.k_weight, work.d_k, work.k, work.d_k_in, partial + shape.head_dim);
  if (work.d_v.heads == 0) return;
  for (int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; token < shape.tokens;
       token += int64_t{gridDim.x} * kWarps) {
    copy_heads(token, shape.head_dim, Pairs::kPacks, work.d_v, work.d_v_in);
  }
}

template <class T>
bool in_packs(const Heads<T>& heads) {
  return aligned(heads.values) && heads.stride % kPack == 0;
}

// The power of two of lanes for a head where packs fit, else 0.
int lanes_of(const RotaryShape& shape) {
  const auto lanes = static_cast<int>(shape.head_dim / kPack);
  const bool fits = shape.head_dim % kPack == 0 && (lanes & (lanes - 1)) == 0 && lanes > 1 && aligned(shape.cos) &&
                    aligned(shape.sin) && aligned(shape.q_weight) && aligned(shape.k_weight);
  return fits ? lanes : 0;
}

// Calls with the way to read heads of this shape and with whether there are norms.
template <class Call>
void choose(int lanes, bool norm, const Call& call) {
  const auto with = [&](auto pairs) {
    if (norm) {
      call(pairs, std::true_type());
    } else {
      call(pairs, std::false_type());
    }
  };
  if (lanes == 32) {
    with(PackedPairs<32>());
  } else if (lanes == 16) {
    with(PackedPairs<16>());
  } else if (lanes == 8) {
    with(PackedPairs<8>());
  } else if (lanes == 4) {
    with(PackedPairs<4>());
  } else if (lanes == 2) {
    with(PackedPairs<2>());
  } else {
    with(SinglePairs());
  }
}

void check_shape(const RotaryShape& shape) {
  VIME_CHECK(shape.head_dim > 0 && shape.head_dim % 2 == 0 && shape.head_dim <= kLargestHeadDim,
             "rotary kernels take even head_dims up to 256");
  VIME_CHECK((shape.q_weight == nullptr) == (shape.k_weight == nullptr), "q and k have norms, or neither");
}

}  // namespace

void norm_and_rotate(const RotaryShape& shape, const Heads<const Bf16>& q, const Heads<const Bf16>& k,
                     const Heads<Bf16>& q_out, const Heads<Bf16>& k_out, Stream stream) {
  check_shape(shape);
  if (shape.tokens == 0) return;
  const bool packs = in_packs(q) && in_packs(k) && in_packs(q_out) && in_packs(k_out);
  const auto blocks = static_cast<unsigned>(divide_up(shape.tokens, kWarps));
  choose(packs ? lanes_of(shape) : 0, shape.q_weight != nullptr, [&](auto pairs, auto norm) {
    forward<decltype(pairs), 4, decltype(norm)::value>
        <<<blocks, kWarps * kWarp, 0, stream>>>(shape, q, k, q_out, k_out);
  });
  VIME_CUDA(cudaGetLastError());
}

int64_t norm_and_rotate_workspace(int64_t head_dim) {
  return kPartialBlocks * 2 * head_dim;
}

void norm_and_rotate_backward(const RotaryShape& shape, const RotaryBackward& work, Stream stream) {
  check_shape(shape);
  if (shape.tokens == 0) return;
  const bool norm = shape.q_weight != nullptr;
  const bool packs = in_packs(work.d_q) && in_packs(work.d_k) && in_packs(work.d_v) && in_packs(work.d_q_in) &&
                     in_packs(work.d_k_in) && in_packs(work.d_v_in) &&
                     (!norm || (in_packs(work.q) && in_packs(work.k)));
  const int64_t needed = divide_up(shape.tokens, kWarps);
  const int64_t blocks = norm ? std::min(needed, kPartialBlocks) : needed;
  choose(packs ? lanes_of(shape) : 0, norm, [&](auto pairs, auto with_norm) {
    backward<decltype(pairs), 2, decltype(with_norm)::value>
        <<<static_cast<unsigned>(blocks), kWarps * kWarp, 0, stream>>>(shape, work);
  });
  VIME_CUDA(cudaGetLastError());
  if (!norm) return;
  const int64_t stride = 2 * shape.head_dim;
  if (work.d_q_weight != nullptr) {
    add_column_sums(work.workspace, blocks, shape.head_dim, stride, work.d_q_weight, stream);
  }
  if (work.d_k_weight != nullptr) {
    add_column_sums(work.workspace + shape.head_dim, blocks, shape.head_dim, stride, work.d_k_weight, stream);
  }
}

}  // namespace vime::gpu
