// Element types that this room's kernels read and write. bf16 values are passed as their 16 bits.
#pragma once

#include <cstdint>

namespace vime::gpu {

using Bf16 = uint16_t;  // the upper half of a float32

enum class Element { bf16, f32 };

}  // namespace vime::gpu
