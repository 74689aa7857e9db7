#include "vllm/bodies.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace vime;
using namespace vime::vllm;
using tensor::DType;

namespace {

const std::vector<tensor::TensorInfo> kTensors = {{"a.weight", DType::bf16, {4, 3}}, {"b.bias", DType::f32, {2}}};
const NcclPlace kPlace{3, 9};
const NcclPacking kPacking{4096, 3};

const Dialect k21 = dialect_of("0.21.0"), k24 = dialect_of("0.24.0"), k25 = dialect_of("0.25.1"),
              k27 = dialect_of("0.27.1"), k29 = dialect_of("0.29.0"), k33 = dialect_of("0.33.0");

const Json kLists = parse_json(
    R"({"names": ["a.weight", "b.bias"], "dtype_names": ["bfloat16", "float32"], "shapes": [[4, 3], [2]]})", "test");

Json with(Json base, const char* more) {
  base.update(parse_json(more, "test"));
  return base;
}

// Keys may stand in any order.
bool same(const Json& a, const Json& b) {
  return nlohmann::json::parse(a.dump()) == nlohmann::json::parse(b.dump());
}

}  // namespace

TEST_CASE("start has a body until 0.24 and finish has one from 0.27 on") {
  CHECK(start_body(k21) == Json::object());
  CHECK(start_body(k24) == Json::object());
  CHECK(start_body(k25).is_null());
  CHECK(start_body(k33).is_null());
  CHECK(finish_body(k21, 7).is_null());
  CHECK(finish_body(k25, 7).is_null());
  CHECK(finish_body(k27, 7).dump() == R"({"weight_version":"7"})");
  CHECK(finish_body(k33, 12).dump() == R"({"weight_version":"12"})");
}

TEST_CASE("IPC: packed moves from update_info to init_info with 0.27") {
  CHECK(ipc_init_info(k21, false).dump() == "{}");
  CHECK(ipc_init_info(k25, true).dump() == "{}");
  CHECK(ipc_init_info(k27, true).dump() == R"({"packed":true})");
  CHECK(ipc_init_info(k33, false).dump() == R"({"packed":false})");

  CHECK(same(ipc_update_info(k21, kTensors, "foo"), with(kLists, R"({"ipc_handles_pickled": "Zm9v"})")));
  CHECK(
      same(ipc_update_info(k25, kTensors, "foo"), with(kLists, R"({"ipc_handles_pickled": "Zm9v", "packed": false})")));
  CHECK(same(ipc_update_info(k33, kTensors, "foo"), with(kLists, R"({"ipc_handles_pickled": "Zm9v"})")));
  const char* packed = R"({"ipc_handles_pickled": "Zm9v", "tensor_sizes": [24, 8], "packed": true})";
  CHECK(same(ipc_packed_update_info(k24, kTensors, "foo"), with(kLists, packed)));
  CHECK(same(ipc_packed_update_info(k25, kTensors, "foo"), with(kLists, packed)));
  CHECK(same(ipc_packed_update_info(k27, kTensors, "foo"),
             with(kLists, R"({"ipc_handles_pickled": "Zm9v", "tensor_sizes": [24, 8]})")));
}

TEST_CASE("NCCL: packed and its buffer move from update_info to init_info with 0.28") {
  const Json place =
      parse_json(R"({"master_address": "10.0.0.1", "master_port": 29500, "rank_offset": 3, "world_size": 9})", "test");
  const char* packing = R"({"packed": true, "packed_buffer_size_bytes": 4096, "packed_num_buffers": 3})";
  for (const Dialect& dialect : {k21, k24, k25, k27}) {
    CAPTURE(dialect.version);
    CHECK(same(nccl_init_info(dialect, "10.0.0.1", 29500, kPlace, kPacking), place));
    CHECK(same(nccl_update_info(dialect, kTensors, kPacking), with(kLists, packing)));
    CHECK(same(nccl_update_info(dialect, kTensors, std::nullopt), with(kLists, R"({"packed": false})")));
  }
  for (const Dialect& dialect : {k29, k33}) {
    CAPTURE(dialect.version);
    CHECK(same(nccl_init_info(dialect, "10.0.0.1", 29500, kPlace, kPacking), with(place, packing)));
    CHECK(same(nccl_init_info(dialect, "10.0.0.1", 29500, kPlace, std::nullopt), with(place, R"({"packed": false})")));
    CHECK(same(nccl_update_info(dialect, kTensors, kPacking), kLists));
  }
}

TEST_CASE("NCCL: the unique id itself goes to 0.30 and newer, and nowhere else") {
  const NcclUniqueId id{};
  const Json info = nccl_init_info(k33, id, kPlace, kPacking);
  CHECK(info.at("nccl_unique_id_b64") == std::string(170, 'A') + "A=");
  CHECK_FALSE(info.contains("master_address"));
  CHECK_FALSE(info.contains("master_port"));
  CHECK(info.at("rank_offset") == 3);
  CHECK_THROWS_WITH_AS(nccl_init_info(k29, id, kPlace, kPacking), doctest::Contains("from a store only"), Error);
}

TEST_CASE("what a release cannot take is refused before it is sent") {
  CHECK_THROWS_WITH_AS(ipc_init_info(k21, true), doctest::Contains("takes no packed buffer by CUDA IPC"), Error);
  CHECK_THROWS_WITH_AS(ipc_packed_update_info(k21, kTensors, "foo"), doctest::Contains("takes no packed buffer"),
                       Error);
  const std::vector<tensor::TensorInfo> scalar = {{"scale", DType::f32, {}}};
  CHECK_THROWS_WITH_AS(ipc_packed_update_info(k25, scalar, "foo"), doctest::Contains("scale has no dimensions"), Error);
  CHECK_THROWS_WITH_AS(nccl_update_info(k25, scalar, kPacking), doctest::Contains("scale has no dimensions"), Error);
  CHECK_NOTHROW(nccl_update_info(k25, scalar, std::nullopt));
  CHECK_NOTHROW(nccl_update_info(k33, scalar, kPacking));
  for (const DType dtype : {DType::i16, DType::boolean}) {
    const std::vector<tensor::TensorInfo> tensors = {{"mask", dtype, {8}}};
    CHECK_THROWS_WITH_AS(nccl_update_info(k33, tensors, std::nullopt), doctest::Contains("cannot receive"), Error);
    CHECK_NOTHROW(nccl_update_info(k33, tensors, kPacking));
  }
}

TEST_CASE("an update of no tensors is a bug of the caller") {
  for (const Dialect& dialect : {k25, k33}) {
    CHECK_THROWS_WITH_AS(nccl_update_info(dialect, {}, kPacking), doctest::Contains("no tensors"), Error);
    CHECK_THROWS_WITH_AS(ipc_update_info(dialect, {}, "foo"), doctest::Contains("no tensors"), Error);
  }
}
