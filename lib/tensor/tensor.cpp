#include "tensor/tensor.hpp"

#include <array>

#include "base/error.hpp"

namespace vime::tensor {
namespace {

struct DTypeRow {
  DType dtype;
  std::size_t bytes;
  const char* torch_name;
  const char* safetensors_name;
};

constexpr std::array<DTypeRow, 10> kDTypes = {{
    {DType::f64, 8, "float64", "F64"},
    {DType::f32, 4, "float32", "F32"},
    {DType::f16, 2, "float16", "F16"},
    {DType::bf16, 2, "bfloat16", "BF16"},
    {DType::i64, 8, "int64", "I64"},
    {DType::i32, 4, "int32", "I32"},
    {DType::i16, 2, "int16", "I16"},
    {DType::i8, 1, "int8", "I8"},
    {DType::u8, 1, "uint8", "U8"},
    {DType::boolean, 1, "bool", "BOOL"},
}};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row;
  }
  throw Error(ErrorKind::internal, "no dtype has the number " + std::to_string(static_cast<int>(dtype)));
}

DType parse_name(const std::string& name, const char* DTypeRow::*column) {
  std::string known;
  for (const DTypeRow& row : kDTypes) {
    if (name == row.*column) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.*column);
  }
  throw Error(ErrorKind::refused, "unknown dtype \"" + name + "\"; expected one of " + known);
}

}  // namespace

std::size_t element_bytes(DType dtype) {
  return row_of(dtype).bytes;
}
std::string dtype_name(DType dtype) {
  return row_of(dtype).torch_name;
}
std::string safetensors_name(DType dtype) {
  return row_of(dtype).safetensors_name;
}
DType parse_dtype_name(const std::string& name) {
  return parse_name(name, &DTypeRow::torch_name);
}
DType parse_safetensors_name(const std::string& name) {
  return parse_name(name, &DTypeRow::safetensors_name);
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) throw Error(ErrorKind::refused, "shape " + shape_text(shape) + " has a negative size");
    if (size == 0) {
      // The other sizes still have to be looked at: a negative one hides behind a zero otherwise.
      empty = true;
    } else if (__builtin_mul_overflow(count, size, &count)) {
      throw Error(ErrorKind::refused, "shape " + shape_text(shape) + " has more elements than 64 bits can count");
    }
  }
  return empty ? 0 : count;
}

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace vime::tensor
