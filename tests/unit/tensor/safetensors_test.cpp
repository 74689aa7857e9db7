#include "tensor/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "base/error.hpp"

using namespace vime;
using namespace vime::tensor;

namespace {

std::string little_endian(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// What the reader says about a file of these bytes; "" when it takes it.
std::string refusal(const std::string& bytes) {
  TempDir dir;
  const fs::path path = dir.path() / "x.safetensors";
  write_file_atomic(path, bytes);
  try {
    SafetensorsFile file(path);
    return "";
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(e.message().find(path.string()) == 0);
    return e.message();
  }
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return little_endian(header.size()) + header + std::string(data_bytes, 'x');
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what was written reads back, in order, aligned and with its metadata") {
  TempDir dir;
  const fs::path path = dir.path() / "a.safetensors";
  const std::vector<uint8_t> flags = {1, 0, 1};
  const std::vector<float> values = {1.5f, -2.0f, 3.25f, 0.0f};
  const std::vector<int64_t> ids = {7, -9};
  const auto bytes = [](const auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  write_safetensors(path,
                    {{{"flags", DType::u8, {3}}, bytes(flags)},
                     {{"values", DType::f32, {2, 2}}, bytes(values)},
                     {{"none", DType::f32, {0, 5}}, nullptr},
                     {{"ids", DType::i64, {2}}, bytes(ids)}},
                    {{"format", "pt"}});
  SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.tensors()[0].info == TensorInfo{"flags", DType::u8, {3}});
  CHECK(file.tensors()[1].info == TensorInfo{"values", DType::f32, {2, 2}});
  CHECK(file.tensors()[2].info == TensorInfo{"none", DType::f32, {0, 5}});
  CHECK(file.tensors()[3].info == TensorInfo{"ids", DType::i64, {2}});
  CHECK(std::memcmp(file.find("flags").data, flags.data(), 3) == 0);
  CHECK(std::memcmp(file.find("values").data, values.data(), 16) == 0);
  CHECK(std::memcmp(file.find("ids").data, ids.data(), 16) == 0);
  for (const TensorView& view : file.tensors()) {
    CHECK(reinterpret_cast<uintptr_t>(view.data) % element_bytes(view.info.dtype) == 0);
  }
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.contains("ids"));
  CHECK_FALSE(file.contains("id"));
  // Nothing but the finished file stays behind.
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
  SafetensorsFile moved = std::move(file);
  CHECK(moved.find("values").info.shape == Shape{2, 2});
}

TEST_CASE("the bytes of a small file are those of the format") {
  TempDir dir;
  const fs::path path = dir.path() / "b.safetensors";
  const uint16_t value = 0x3f80;
  write_safetensors(path, {{{"w", DType::bf16, {1}}, reinterpret_cast<const std::byte*>(&value)}});
  const std::string header = R"({"w":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}} )";
  REQUIRE(header.size() % 8 == 0);
  CHECK(read_file(path) == little_endian(header.size()) + header + std::string("\x80\x3f", 2));
}

TEST_CASE("a tensor that is not there is refused with the names of file and tensor") {
  TempDir dir;
  const fs::path path = dir.path() / "c.safetensors";
  write_safetensors(path, {});
  SafetensorsFile file(path);
  CHECK(file.tensors().empty());
  try {
    file.find("lm_head.weight");
    FAIL("found");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(has(e.message(), path.string()));
    CHECK(has(e.message(), "lm_head.weight"));
  }
  CHECK_THROWS_AS(SafetensorsFile(dir.path() / "absent"), Error);
  CHECK_THROWS_AS(SafetensorsFile(dir.path()), Error);
}

TEST_CASE("truncated files and huge headers are refused") {
  const std::string header = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  CHECK(refusal(file_of(header, 16)) == "");
  CHECK(has(refusal(file_of(header, 15)), "truncated"));
  CHECK(has(refusal(file_of(header, 0)), "truncated"));
  CHECK(has(refusal(file_of(header, 16).substr(0, 30)), "truncated"));
  CHECK(has(refusal("1234567"), "truncated"));
  CHECK(has(refusal(""), "truncated"));
  CHECK(has(refusal(little_endian(uint64_t{1} << 63) + header), "claims 9223372036854775808 bytes"));
  CHECK(has(refusal(file_of(header, 20)), "4 bytes after the last tensor"));
}

TEST_CASE("bad headers are refused with the reason") {
  CHECK(has(refusal(file_of("not json", 0)), "not JSON"));
  CHECK(has(refusal(file_of("[1]", 0)), "not a JSON object"));
  CHECK(
      has(refusal(file_of(R"({"w":{"shape":[4],"data_offsets":[0,16]}})", 16)), "tensor \"w\": \"dtype\" is missing"));
  CHECK(has(refusal(file_of(R"({"w":{"dtype":"F9","shape":[4],"data_offsets":[0,16]}})", 16)), "unknown dtype \"F9\""));
  CHECK(has(refusal(file_of(R"({"w":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", 16)), "shape"));
  CHECK(has(refusal(file_of(R"({"w":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})", 16)), "takes 20 bytes"));
  CHECK(has(refusal(file_of(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", 16)), "do not fit"));
  CHECK(has(refusal(file_of(R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0]}})", 16)), "expected [begin, end]"));
  CHECK(has(refusal(file_of(R"({"w":{"dtype":"F32","shape":[4294967296,2147483648],"data_offsets":[0,0]}})", 0)),
            "shape"));
  CHECK(has(refusal(file_of(R"({"__metadata__":{"a":1}})", 0)), "__metadata__"));
  const std::string w = R"("w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  CHECK(has(refusal(file_of("{" + w + "," + w + "}", 4)), "two tensors have the name \"w\""));
}

TEST_CASE("tensors that share bytes are refused by name") {
  const std::string overlap =
      R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
  CHECK(has(refusal(file_of(overlap, 8)), "\"a\" and \"b\" overlap"));
  const std::string side_by_side =
      R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  CHECK(refusal(file_of(side_by_side, 8)) == "");
}
