#include "tensor/tensor.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace vime;
using namespace vime::tensor;

TEST_CASE("every dtype reads back from both of its names") {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                            DType::i8, DType::u8, DType::boolean}) {
    CHECK(parse_dtype_name(dtype_name(dtype)) == dtype);
    CHECK(parse_safetensors_name(safetensors_name(dtype)) == dtype);
  }
  CHECK(dtype_name(DType::bf16) == "bfloat16");
  CHECK(safetensors_name(DType::bf16) == "BF16");
  CHECK(element_bytes(DType::i64) == 8);
  CHECK(element_bytes(DType::f16) == 2);
  CHECK(element_bytes(DType::boolean) == 1);
}

TEST_CASE("an unknown dtype is refused by name") {
  try {
    parse_dtype_name("float8_e4m3fn");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(e.message().find("\"float8_e4m3fn\"") != std::string::npos);
    CHECK(e.message().find("bfloat16") != std::string::npos);
  }
  CHECK_THROWS_AS(parse_safetensors_name("float32"), Error);
}

TEST_CASE("elements of a shape are counted and senseless shapes refused") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({3, 37, 160}) == 17760);
  CHECK(element_count({5, 0, 8}) == 0);
  CHECK_THROWS_AS(element_count({0, -1}), Error);
  CHECK_THROWS_AS(element_count({int64_t{1} << 32, int64_t{1} << 32}), Error);
  CHECK(shape_text({3, 37}) == "[3, 37]");
  CHECK(shape_text({}) == "[]");
  CHECK(TensorInfo{"x", DType::bf16, {3, 5}}.bytes() == 30);
}
