#include "vllm/pickle.hpp"

#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"

using namespace vime;
using namespace vime::vllm;
using tensor::DType;

namespace {

const std::string kUuid1 = "8f0c8d35-1c2e-4b5a-9d6f-00112233aabb", kUuid2 = "ffffffff-1c2e-4b5a-9d6f-00112233aabb";
const std::string kNull(1, '\0');

DevicePlace place(const std::string& uuid, char fill, uint64_t offset) {
  DevicePlace place{uuid, {}, offset};
  place.handle.fill(static_cast<std::byte>(fill));
  return place;
}

std::string text(const std::string& content) {
  return "X" + std::string(1, static_cast<char>(content.size())) + std::string(3, '\0') + content;
}

// The fifteen arguments; sizes, strides, length and offset as the caller's opcodes.
std::string arguments(const std::string& sizes, const std::string& strides, const std::string& dtype, char fill,
                      const std::string& length, const std::string& offset) {
  return "(ctorch\nTensor\n(" + sizes + "t(" + strides + "tK" + kNull + "ctorch.storage\nTypedStorage\nctorch\n" +
         dtype + "\nK" + kNull + "C@" + std::string(64, fill) + length + offset + "\x89" + "C\x0a/vime_none" + "K" +
         kNull + "C@" + std::string(64, '\0') + "\x89t";
}

const Dialect kLegacy = dialect_of("0.21.0"), kPresent = dialect_of("0.25.1");

}  // namespace

TEST_CASE("the unique id's pickle has vLLM's 223 bytes") {
  NcclUniqueId id;
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(i);
  std::string content;
  for (int i = 0; i < 128; ++i) content += static_cast<char>(i);
  const std::string pickle = unique_id_pickle(id);
  CHECK(pickle.size() == 223);
  CHECK(pickle ==
        "\x80\x03"
        "c_ctypes\n_unpickle\n"
        "cvllm.distributed.device_communicators.pynccl_wrapper\nncclUniqueId\n"
        "}C\x80" +
            content + "\x86\x86R.");
}

TEST_CASE("a packed buffer is one dictionary with the arguments of each worker") {
  // 3 MiB at 4096 bytes from the allocation's start.
  const std::string length("J\0\0\x30\0", 5), offset("M\0\x10", 3);
  const auto entry = [&](const std::string& uuid, char fill) {
    return text(uuid) + arguments(length, "K\1", "uint8", fill, length, offset) + "s";
  };
  CHECK(packed_ipc_pickle({place(kUuid1, 'h', 4096)}, 3u << 20) == "\x80\x03}" + entry(kUuid1, 'h') + ".");
  CHECK(packed_ipc_pickle({place(kUuid1, 'h', 4096), place(kUuid2, 'i', 4096)}, 3u << 20) ==
        "\x80\x03}" + entry(kUuid1, 'h') + entry(kUuid2, 'i') + ".");
  // The size that was sent through PyTorch's own rebuild_cuda_tensor, less its two bytes before the handle, with the
  // raw form of 64: 1 GiB at 4096.
  CHECK(packed_ipc_pickle({place(kUuid1, 'h', 4096)}, 1u << 30).size() == 274);
}

TEST_CASE("tensors are a list of dictionaries with row-major strides") {
  const PlacedTensor matrix{{"a", DType::bf16, {2, 3, 5}}, {place(kUuid1, 'h', 0), place(kUuid2, 'i', 256)}};
  const PlacedTensor scalar{{"b", DType::f32, {}}, {place(kUuid1, 'h', 512)}};
  const std::string first_sizes = "K\2K\3K\5", first_strides = "K\x0fK\5K\1", length = "K\x3c";
  CHECK(tensors_ipc_pickle(kPresent, std::vector{matrix, scalar}) ==
        "\x80\x03](}" + text(kUuid1) + arguments(first_sizes, first_strides, "bfloat16", 'h', length, "K" + kNull) +
            "s" + text(kUuid2) +
            arguments(first_sizes, first_strides, "bfloat16", 'i', length, std::string("M\0\1", 3)) + "s}" +
            text(kUuid1) + arguments("", "", "float32", 'h', "K\4", std::string("M\0\2", 3)) + "se.");
}

TEST_CASE("0.21 gets the function before the arguments") {
  const PlacedTensor vector{{"a", DType::u8, {7}}, {place(kUuid1, 'h', 0)}};
  const std::string plain = arguments("K\7", "K\1", "uint8", 'h', "K\7", "K" + kNull);
  CHECK(tensors_ipc_pickle(kPresent, std::vector{vector}) == "\x80\x03](}" + text(kUuid1) + plain + "se.");
  CHECK(tensors_ipc_pickle(kLegacy, std::vector{vector}) ==
        "\x80\x03](}" + text(kUuid1) + "(ctorch.multiprocessing.reductions\nrebuild_cuda_tensor\n" + plain + "tse.");
}

TEST_CASE("every dtype has PyTorch's name") {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                            DType::i8, DType::u8, DType::boolean}) {
    const PlacedTensor tensor{{"a", dtype, {1}}, {place(kUuid1, 'h', 0)}};
    const std::string name = "ctorch\n" + tensor::dtype_name(dtype) + "\n";
    CHECK(tensors_ipc_pickle(kPresent, std::vector{tensor}).find(name) != std::string::npos);
  }
}

TEST_CASE("integers take the shortest form that keeps them positive") {
  const auto length_of = [](uint64_t offset) {
    return packed_ipc_pickle({place(kUuid1, 'h', offset)}, 1).size() -
           packed_ipc_pickle({place(kUuid1, 'h', 0)}, 1).size();
  };
  const std::string pickle = packed_ipc_pickle({place(kUuid1, 'h', 0x80000000u)}, 1);
  CHECK(pickle.find(std::string("\x8a\x05\0\0\0\x80\0", 7)) != std::string::npos);
  CHECK(length_of(255) == 0);
  CHECK(length_of(256) == 1);
  CHECK(length_of(65535) == 1);
  CHECK(length_of(65536) == 3);
  CHECK(length_of(0x7fffffff) == 3);
  CHECK(length_of(0x80000000u) == 5);
  CHECK(length_of((1ull << 39) - 1) == 5);
  CHECK(length_of(1ull << 39) == 6);
  CHECK(length_of((1ull << 63) - 1) == 8);
  CHECK(length_of(~0ull) == 9);
}

TEST_CASE("no device, or one twice, is refused") {
  CHECK_THROWS_WITH_AS(packed_ipc_pickle({}, 1), doctest::Contains("there is no device"), Error);
  CHECK_THROWS_WITH_AS(packed_ipc_pickle({place(kUuid1, 'h', 0), place(kUuid1, 'i', 0)}, 1),
                       doctest::Contains("two for the device " + doctest::String(kUuid1.c_str())), Error);
}
