// Attention in 16-bit floats on a GPU: LibTorch's kernels, which keep no probabilities. attention.cpp decides where
// they are taken.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "model/attention.hpp"

namespace vime::model {

// Whether tensors of this type on this device can be given to the functions below.
bool flash_attention_fits(torch::Device device, torch::ScalarType dtype);

// As packed_attention and context_parallel_attention.
Attention flash_packed_attention(const std::vector<int64_t>& lengths, torch::Device device, bool same_bits);
Attention flash_context_parallel_attention(const std::vector<QuerySpan>& spans, int64_t rows, CollectivesPtr ranks,
                                           torch::Device device);

}  // namespace vime::model
