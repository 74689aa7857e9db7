// Which tensor- and pipeline-parallel sizes a model can be cut into. The one place that knows: the spec's checks, the
// planner and the cuts themselves all ask here. Pure functions; sizes are at least 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arch/model_config.hpp"

namespace vime::arch {

// Why so many tensor-parallel ranks cannot share the model; "" when they can. Attention heads and the intermediate size
// are cut in equal parts. Key/value heads are too, or, with fewer heads than ranks, each is held by equally many ranks.
std::string tensor_parallel_fault(const ModelConfig& config, int64_t size);
// Why the layers cannot be cut into so many stages; "" when they can.
std::string pipeline_parallel_fault(const ModelConfig& config, int64_t size);

// Every size without a fault, ascending.
std::vector<int64_t> legal_tensor_parallel(const ModelConfig& config);

// Error{refused} with the fault, and what is possible as its hint.
void require_tensor_parallel(const ModelConfig& config, int64_t size);
void require_pipeline_parallel(const ModelConfig& config, int64_t size);

// Of a number of at least 1, ascending.
std::vector<int64_t> divisors(int64_t number);

}  // namespace vime::arch
