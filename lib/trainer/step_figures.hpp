// What a rank says of an optimizer step: figures of its part of each gradient and weight, worked out on its device, a
// piece at a time, against the values of a single rank, which are read from that rank's file as they are needed. One
// thread; not collective.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "arch/parameters.hpp"
#include "rollout/step_probe.hpp"

namespace vime::trainer {

// mine: [shard.shape], of any type, on any device. whole: the file's, float32, on the host, which the shard is a part
// of; undefined where there is nothing to be held against. Arithmetic is in float64.
rollout::TensorFigures tensor_figures(const torch::Tensor& mine, const arch::Shard& shard, const torch::Tensor& whole,
                                      double spacing = 0.0);

// gradient, weights: flat, with an element for each of the arena's, on the same device. against: a step's file, or "".
// Error{refused} naming file and tensor where it is not this model's.
std::vector<rollout::ShardFigures> step_figures(const arch::ArenaLayout& arena, const torch::Tensor& gradient,
                                                const torch::Tensor& weights, const std::string& against,
                                                double weight_spacing);

// Writes a step's file. arena: of a rank that holds every parameter whole. Does not wait for the disk.
void write_step(const std::string& path, const arch::ArenaLayout& arena, const torch::Tensor& gradient,
                const torch::Tensor& weights);

}  // namespace vime::trainer
