// Prints, as JSON, what vime sends to vLLM, so that scripts/check-vllm-protocol.py can hold it against Python.
//   vllm_protocol_dump bodies VERSION    all bodies and infos for that release
//   vllm_protocol_dump pickles VERSION   pickles of known arguments, as hexadecimal digits
//   vllm_protocol_dump chunks            stdin: one {"shapes", "dtype_names", "buffer_bytes"} a line; its chunks, a
//   line each vllm_protocol_dump store             prints the port of a store that has a unique id, and serves until
//   stdin closes
#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/json.hpp"
#include "vllm/bodies.hpp"
#include "vllm/packed_chunks.hpp"
#include "vllm/pickle.hpp"
#include "vllm/store_server.hpp"

using namespace vime;
using namespace vime::vllm;
using tensor::DType;

namespace {

const DType kDTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                         DType::i32, DType::i16, DType::i8,  DType::u8,   DType::boolean};
const NcclPlace kPlace{1, 5};
const NcclPacking kPacking{1 << 20, 2};

NcclUniqueId counting_id() {
  NcclUniqueId id;
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(255 - i);
  return id;
}

DevicePlace place(int device, uint64_t offset) {
  DevicePlace place;
  place.device_uuid = "0000000" + std::to_string(device) + "-aaaa-bbbb-cccc-0123456789ab";
  for (std::size_t i = 0; i < place.handle.size(); ++i) place.handle[i] = static_cast<std::byte>(i + 64 * device);
  place.offset = offset;
  return place;
}

std::vector<tensor::TensorInfo> one_of_each() {
  std::vector<tensor::TensorInfo> tensors;
  for (const DType dtype : kDTypes) tensors.push_back({"model." + tensor::dtype_name(dtype), dtype, {3, 5}});
  return tensors;
}

// Null where the release cannot do it.
template <typename Function>
Json or_null(Function function) {
  try {
    return function();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::refused) throw;
    return nullptr;
  }
}

#define FIELD(name) \
  { #name, dialect.name }
Json capabilities(const Dialect& dialect) {
  return {FIELD(start_needs_body),     FIELD(start_takes_raw_weights), FIELD(failed_update_ends_session),
          FIELD(finish_takes_version), FIELD(aborts_all_requests),     FIELD(shuts_transfer_down),
          FIELD(has_weight_checker),   FIELD(pause_refuses_requests),  FIELD(ipc_value_has_function),
          FIELD(ipc_takes_packed),     FIELD(ipc_packed_in_init),      FIELD(ipc_imports_ray),
          FIELD(nccl_packed_in_init),  FIELD(nccl_takes_unique_id),    FIELD(packed_takes_scalars),
          FIELD(generate_needs_flag),  FIELD(generate_tells_versions), FIELD(generate_logprobs_by_id)};
}
#undef FIELD

std::vector<PlacedTensor> placed_for_two_workers(const std::vector<tensor::TensorInfo>& tensors) {
  const uint64_t offsets[] = {0, 255, 256, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 39, 1ull << 47};
  std::vector<PlacedTensor> placed;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    placed.push_back({tensors[i], {place(1, offsets[i % 10]), place(2, 4096 * i)}});
  }
  return placed;
}

Json bodies(const Dialect& dialect) {
  const auto all = one_of_each();
  const std::vector<tensor::TensorInfo> floats(all.begin(), all.begin() + 4);
  uint64_t bytes = 0;
  for (const tensor::TensorInfo& info : all) bytes += info.bytes();
  const std::string tensors = tensors_ipc_pickle(dialect, placed_for_two_workers(all));
  const std::string buffer = packed_ipc_pickle({place(1, 0), place(2, 8192)}, bytes);
  return {{"generation", generation_name(dialect.generation)},
          {"newer_than_known", dialect.newer_than_known},
          {"capabilities", capabilities(dialect)},
          {"start", start_body(dialect)},
          {"finish", finish_body(dialect, 7)},
          {"ipc_init", ipc_init_info(dialect, false)},
          {"ipc_packed_init", or_null([&] { return ipc_init_info(dialect, true); })},
          {"nccl_init", nccl_init_info(dialect, "10.0.0.1", 29500, kPlace, std::nullopt)},
          {"nccl_packed_init", nccl_init_info(dialect, "10.0.0.1", 29500, kPlace, kPacking)},
          {"nccl_id_init", or_null([&] { return nccl_init_info(dialect, counting_id(), kPlace, kPacking); })},
          {"ipc_update", ipc_update_info(dialect, all, tensors)},
          {"ipc_packed_update", or_null([&] { return ipc_packed_update_info(dialect, all, buffer); })},
          {"nccl_update", nccl_update_info(dialect, floats, std::nullopt)},
          {"nccl_packed_update", nccl_update_info(dialect, all, kPacking)}};
}

Json pickles(const Dialect& dialect) {
  const auto hexed = [](const std::string& bytes) { return hex_of(bytes.data(), bytes.size()); };
  std::vector<PlacedTensor> placed = placed_for_two_workers(one_of_each());
  placed.push_back({{"model.scalar", DType::f32, {}}, {place(1, 512)}});
  placed.push_back({{"model.empty", DType::f32, {0, 3}}, {place(1, 1024)}});
  return {{"unique_id", hexed(unique_id_pickle(counting_id()))},
          {"packed", hexed(packed_ipc_pickle({place(1, 0), place(2, 1ull << 33)}, 3ull << 30))},
          {"tensors", hexed(tensors_ipc_pickle(dialect, placed))}};
}

Json chunk_lists(const std::vector<PackedChunk>& chunks) {
  Json lists = Json::array();
  for (const PackedChunk& chunk : chunks) {
    lists.push_back({{"first", chunk.first}, {"offsets", chunk.offsets}, {"bytes", chunk.bytes}});
  }
  return lists;
}

void print_chunks() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json input = parse_json(line, "stdin");
    std::vector<tensor::TensorInfo> tensors;
    for (std::size_t i = 0; i < input.at("shapes").size(); ++i) {
      tensors.push_back({std::to_string(i), tensor::parse_dtype_name(input.at("dtype_names")[i].get<std::string>()),
                         input.at("shapes")[i].get<tensor::Shape>()});
    }
    const auto buffer_bytes = input.at("buffer_bytes").get<uint64_t>();
    std::vector<tensor::TensorInfo> ordered;
    for (const std::size_t i : aligned_order(tensors)) ordered.push_back(tensors[i]);
    const auto nccl = nccl_chunks(tensors, buffer_bytes);
    std::cout << Json{{"nccl", chunk_lists(nccl)},
                      {"ipc", chunk_lists(ipc_chunks(tensors, buffer_bytes))},
                      {"nccl_is_aligned", is_aligned(tensors, nccl)},
                      {"ordered_is_aligned", is_aligned(ordered, nccl_chunks(ordered, buffer_bytes))}}
                     .dump()
              << std::endl;
  }
}

void serve_store() {
  StoreServer server("127.0.0.1");
  server.set(kUniqueIdKey, unique_id_pickle(counting_id()));
  std::cout << server.port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) std::cout << server.clients_joined() << std::endl;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "bodies") {
    std::cout << bodies(dialect_of(arguments[1])) << "\n";
  } else if (arguments.size() == 2 && arguments[0] == "pickles") {
    std::cout << pickles(dialect_of(arguments[1])) << "\n";
  } else if (arguments == std::vector<std::string>{"chunks"}) {
    print_chunks();
  } else if (arguments == std::vector<std::string>{"store"}) {
    serve_store();
  } else {
    std::cerr << "usage: vllm_protocol_dump bodies VERSION | pickles VERSION | chunks | store\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "vllm_protocol_dump: " << error.what() << "\n";
    return 1;
  }
}
