// Shapes of public models, from their config.json: what benchmarks and plans are about, and presets that begin with
// random weights. Pure.
#pragma once

#include <string>
#include <vector>

#include "arch/model_config.hpp"

namespace vime::arch {

std::vector<std::string> shape_names();  // "qwen3-0.6b", "qwen3-4b", "qwen3-8b"
// With the model's own vocabulary. Error{refused} lists the names.
ModelConfig shape(const std::string& name);

}  // namespace vime::arch
