// What a backward pass computes again instead of keeping it.
#pragma once

#include <string>

namespace vime::arch {

// Nothing; what costs little and is large (norms, the product that enters the down projection), on GPUs; or whole
// layers, of which only the input is kept.
enum class Recompute { none, selective, full };
Recompute parse_recompute(const std::string& name);  // by those names; Error{refused} for another

}  // namespace vime::arch
