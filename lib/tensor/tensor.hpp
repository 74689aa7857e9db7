// Tensors as bytes with a name, a dtype and a shape; no arithmetic and no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vime::tensor {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean };

std::size_t element_bytes(DType dtype);
// "float32", "bfloat16", ...: torch's names, as vLLM's protocol uses them
std::string dtype_name(DType dtype);
// "F32", "BF16", ...: safetensors' names
std::string safetensors_name(DType dtype);
// Throws Error{refused} naming the unknown dtype.
DType parse_dtype_name(const std::string& name);
DType parse_safetensors_name(const std::string& name);

using Shape = std::vector<int64_t>;
int64_t element_count(const Shape& shape);   // 1 for a scalar; throws Error{refused} on a negative size or overflow
std::string shape_text(const Shape& shape);  // "[3, 37, 160]"

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;

  uint64_t bytes() const { return static_cast<uint64_t>(element_count(shape)) * element_bytes(dtype); }
  bool operator==(const TensorInfo&) const = default;
};

// A tensor whose bytes somebody else owns (row-major, contiguous).
struct TensorView {
  TensorInfo info;
  const std::byte* data = nullptr;
};

}  // namespace vime::tensor
