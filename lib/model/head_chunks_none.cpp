#include "base/error.hpp"
#include "model/head_chunks.hpp"

namespace vime::model {

TokenLogprobs chunked_logprobs(const HeadChunks&, Entropy) {
  throw Error(ErrorKind::internal, "a head in chunks in a vime without CUDA");
}

}  // namespace vime::model
