#include "vllm/bodies.hpp"

#include "base/base64.hpp"
#include "base/error.hpp"

namespace vime::vllm {
namespace {

Json tensor_lists(std::span<const tensor::TensorInfo> tensors) {
  VIME_CHECK(!tensors.empty(), "an update of no tensors");
  Json names = Json::array(), dtypes = Json::array(), shapes = Json::array();
  for (const tensor::TensorInfo& info : tensors) {
    names.push_back(info.name);
    dtypes.push_back(tensor::dtype_name(info.dtype));
    shapes.push_back(info.shape);
  }
  return {{"names", names}, {"dtype_names", dtypes}, {"shapes", shapes}};
}

void check_packed(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors) {
  for (const tensor::TensorInfo& info : tensors) {
    if (!info.shape.empty() || dialect.packed_takes_scalars) continue;
    throw Error(ErrorKind::refused,
                "vLLM " + dialect.version + ": " + info.name + " has no dimensions, and no packed buffer can hold it",
                "use vLLM 0.32 or newer, or send the tensors one by one");
  }
}

// Workers find NCCL's number of a dtype in a list that lacks these; the trainer would then wait in its broadcast for
// ever.
void check_broadcast(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors) {
  for (const tensor::TensorInfo& info : tensors) {
    if (info.dtype != tensor::DType::i16 && info.dtype != tensor::DType::boolean) continue;
    throw Error(ErrorKind::refused,
                "vLLM " + dialect.version + ": " + info.name + " is " + tensor::dtype_name(info.dtype) +
                    ", which its workers cannot receive on its own",
                "send the tensors packed");
  }
}

void add_packing(Json& info, const std::optional<NcclPacking>& packing) {
  info["packed"] = packing.has_value();
  if (!packing) return;
  info["packed_buffer_size_bytes"] = packing->buffer_bytes;
  info["packed_num_buffers"] = packing->buffers;
}

Json placed(Json info, const Dialect& dialect, const NcclPlace& place, const std::optional<NcclPacking>& packing) {
  info["rank_offset"] = place.rank_offset;
  info["world_size"] = place.world_size;
  if (dialect.nccl_packed_in_init) add_packing(info, packing);
  return info;
}

void check_ipc_packed(const Dialect& dialect) {
  if (dialect.ipc_takes_packed) return;
  throw Error(ErrorKind::refused, "vLLM " + dialect.version + " takes no packed buffer by CUDA IPC",
              "use vLLM 0.22 or newer, or send a handle for each tensor");
}

}  // namespace

Json start_body(const Dialect& dialect) {
  return dialect.start_needs_body ? Json::object() : Json();
}

Json finish_body(const Dialect& dialect, int64_t weight_version) {
  if (!dialect.finish_takes_version) return Json();
  return {{"weight_version", std::to_string(weight_version)}};
}

Json ipc_init_info(const Dialect& dialect, bool packed) {
  if (packed) check_ipc_packed(dialect);
  Json info = Json::object();
  if (dialect.ipc_packed_in_init) info["packed"] = packed;
  return info;
}

Json nccl_init_info(const Dialect& dialect, const std::string& store_host, uint16_t store_port, const NcclPlace& place,
                    const std::optional<NcclPacking>& packing) {
  return placed({{"master_address", store_host}, {"master_port", store_port}}, dialect, place, packing);
}

Json nccl_init_info(const Dialect& dialect, const NcclUniqueId& id, const NcclPlace& place,
                    const std::optional<NcclPacking>& packing) {
  if (!dialect.nccl_takes_unique_id) {
    throw Error(ErrorKind::refused, "vLLM " + dialect.version + " takes NCCL's unique id from a store only",
                "use vLLM 0.30 or newer, or give the address of a store");
  }
  return placed({{"nccl_unique_id_b64", base64_of(id.data(), id.size())}}, dialect, place, packing);
}

Json ipc_update_info(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors, const std::string& pickle) {
  Json info = tensor_lists(tensors);
  info["ipc_handles_pickled"] = base64_of(pickle.data(), pickle.size());
  if (dialect.ipc_takes_packed && !dialect.ipc_packed_in_init) info["packed"] = false;
  return info;
}

Json ipc_packed_update_info(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors,
                            const std::string& pickle) {
  check_ipc_packed(dialect);
  check_packed(dialect, tensors);
  Json info = tensor_lists(tensors);
  info["ipc_handles_pickled"] = base64_of(pickle.data(), pickle.size());
  Json sizes = Json::array();
  for (const tensor::TensorInfo& tensor : tensors) sizes.push_back(tensor.bytes());
  info["tensor_sizes"] = sizes;
  if (!dialect.ipc_packed_in_init) info["packed"] = true;
  return info;
}

Json nccl_update_info(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors,
                      const std::optional<NcclPacking>& packing) {
  if (packing) {
    check_packed(dialect, tensors);
  } else {
    check_broadcast(dialect, tensors);
  }
  Json info = tensor_lists(tensors);
  if (!dialect.nccl_packed_in_init) add_packing(info, packing);
  return info;
}

}  // namespace vime::vllm
