// Tiny checkpoints: the reference model's tensors, and others of the same shapes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "tensor/tensor.hpp"

namespace vime::stand_in {

struct Tensor {
  tensor::TensorInfo info;
  std::vector<std::byte> bytes;
};
using Checkpoint = std::vector<Tensor>;

// Float32 tensors in the order of the files.
Checkpoint read_checkpoint(const fs::path& folder);
// Every weight moved by a wave of its own, so that log-probs change by far more than rounding.
Checkpoint changed(Checkpoint checkpoint);
// The weights, and config.json of the reference model.
void write_checkpoint(const Checkpoint& checkpoint, const fs::path& folder);

}  // namespace vime::stand_in
