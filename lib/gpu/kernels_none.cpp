// This room's kernels in a build without CUDA.
#include "base/error.hpp"
#include "gpu/embedding_kernels.hpp"
#include "gpu/logprob_kernels.hpp"
#include "gpu/norm_kernels.hpp"
#include "gpu/optimizer_kernels.hpp"
#include "gpu/rotary_kernels.hpp"
#include "gpu/swiglu_kernels.hpp"

namespace vime::gpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::refused, "this vime was built without CUDA",
              "configure with -DVIME_CUDA=ON on a machine with the CUDA toolkit and NCCL");
}

}  // namespace

void add_rms_norm(const AddRmsNorm&, Stream) {
  refuse();
}
int64_t add_rms_norm_workspace(int64_t) {
  refuse();
}
void add_rms_norm_backward(const AddRmsNormBackward&, Stream) {
  refuse();
}

void norm_and_rotate(const RotaryShape&, const Heads<const Bf16>&, const Heads<const Bf16>&, const Heads<Bf16>&,
                     const Heads<Bf16>&, Stream) {
  refuse();
}
int64_t norm_and_rotate_workspace(int64_t) {
  refuse();
}
void norm_and_rotate_backward(const RotaryShape&, const RotaryBackward&, Stream) {
  refuse();
}

void swiglu(const Swiglu&, const Rows<Bf16>&, Stream) {
  refuse();
}
void swiglu_backward(const Swiglu&, const Rows<const Bf16>&, const Rows<Bf16>&, const Rows<Bf16>&, const Rows<Bf16>&,
                     Stream) {
  refuse();
}

void logprob_parts(const Logits&, float*, Stream) {
  refuse();
}
void combine_logprob_parts(const float*, int64_t, int64_t, float*, float*, float*, Stream) {
  refuse();
}
void logprob_backward(const Logits&, const float*, const float*, const float*, const float*, Stream) {
  refuse();
}

void adamw(const AdamwState&, const AdamwStep&, const DecayRange*, int64_t, Stream) {
  refuse();
}
void add_sum_of_squares(const float*, int64_t, double*, double*, Stream) {
  refuse();
}

void add_embedding_gradient(const EmbeddingGradient&, Stream) {
  refuse();
}

}  // namespace vime::gpu
