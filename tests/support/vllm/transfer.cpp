#include "support/vllm/transfer.hpp"

#include <cstring>
#include <utility>

#include "support/vllm/failures.hpp"
#include "support/vllm/info_reader.hpp"
#include "support/vllm/ipc_payload.hpp"
#include "support/vllm/pickle_reader.hpp"

namespace vime::stand_in {
namespace {

// torch's name of a dtype's C++ type, in the error of view(dtype).
std::string view_name(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::f64:
      return "Double";
    case tensor::DType::f32:
      return "Float";
    case tensor::DType::f16:
      return "Half";
    case tensor::DType::bf16:
      return "BFloat16";
    case tensor::DType::i64:
      return "Long";
    case tensor::DType::i32:
      return "Int";
    case tensor::DType::i16:
      return "Short";
    case tensor::DType::i8:
      return "Char";
    case tensor::DType::u8:
      return "Byte";
    case tensor::DType::boolean:
      return "Bool";
  }
  return "";
}

// Slices are views of a chunk of bytes, so they have to begin at a multiple of their element size.
void check_alignment(uint64_t offset, tensor::DType dtype) {
  const std::size_t size = tensor::element_bytes(dtype);
  if (offset % size == 0) return;
  throw WorkerError("self.storage_offset() must be divisible by " + std::to_string(size) + " to view Byte as " +
                    view_name(dtype) + " (different element sizes), but got " + std::to_string(offset));
}

std::string length_text(const char* key, std::size_t found, std::size_t names) {
  return std::string("`") + key + "` should be of the same size as `names`: got " + std::to_string(found) + " and " +
         std::to_string(names);
}

InfoClass nccl_init_class(const Flavour& flavour) {
  InfoClass expected{"NCCLWeightTransferInitInfo",
                     "NCCLWeightTransferEngine",
                     "init_info",
                     {"master_address", "master_port", "rank_offset", "world_size"},
                     {}};
  if (flavour.nccl_packed_in_init) expected.optional = {"packed", "packed_buffer_size_bytes", "packed_num_buffers"};
  if (flavour.takes_unique_id) {
    expected.required = {"rank_offset", "world_size"};
    expected.optional.insert(expected.optional.end(), {"master_address", "master_port", "nccl_unique_id_b64"});
  }
  return expected;
}

InfoClass nccl_update_class(const Flavour& flavour) {
  InfoClass expected{"NCCLWeightTransferUpdateInfo",
                     "NCCLWeightTransferEngine",
                     "update_info",
                     {"names", "dtype_names", "shapes"},
                     {}};
  if (!flavour.nccl_packed_in_init) expected.optional = {"packed", "packed_buffer_size_bytes", "packed_num_buffers"};
  if (flavour.knows_update_kind) expected.optional.insert(expected.optional.end(), {"update_kind", "num_updates_list"});
  return expected;
}

InfoClass ipc_update_class(const Flavour& flavour) {
  InfoClass expected{"IPCWeightTransferUpdateInfo",
                     "IPCWeightTransferEngine",
                     "update_info",
                     {"names", "dtype_names", "shapes"},
                     {"ipc_handles", "ipc_handles_pickled"}};
  if (flavour.packed_ipc) expected.optional.push_back("tensor_sizes");
  if (flavour.packed_ipc && !flavour.ipc_packed_in_init) expected.optional.push_back("packed");
  return expected;
}

PickleValue read_handles(const Json& info, bool insecure_serialization) {
  const bool pickled = info.contains("ipc_handles_pickled") && !info["ipc_handles_pickled"].is_null();
  const bool direct = info.contains("ipc_handles") && !info["ipc_handles"].is_null();
  if (pickled && direct) throw WorkerError("Cannot specify both `ipc_handles` and `ipc_handles_pickled`");
  if (direct) throw WorkerError("`ipc_handles` came as JSON, which cannot hold a CUDA IPC handle");
  if (!pickled) throw WorkerError("Either `ipc_handles` or `ipc_handles_pickled` must be provided");
  if (!insecure_serialization) {
    throw WorkerError("Refusing to deserialize `ipc_handles_pickled` without VLLM_ALLOW_INSECURE_SERIALIZATION=1");
  }
  if (!info["ipc_handles_pickled"].is_string())
    throw WorkerError("argument should be a bytes-like object or ASCII string");
  return read_pickle(decode_base64(info["ipc_handles_pickled"].get<std::string>()));
}

std::vector<uint64_t> tensor_sizes(const Json& info, std::size_t count) {
  if (!info.contains("tensor_sizes") || !info["tensor_sizes"].is_array())
    throw WorkerError("`tensor_sizes` must be provided when packed=True");
  if (info["tensor_sizes"].size() != count)
    throw WorkerError(length_text("tensor_sizes", info["tensor_sizes"].size(), count));
  std::vector<uint64_t> sizes;
  for (const Json& size : info["tensor_sizes"]) {
    if (!size.is_number_unsigned()) throw WorkerError("`tensor_sizes`: expected an int, found " + size.dump());
    sizes.push_back(size.get<uint64_t>());
  }
  return sizes;
}

// Every worker opens its own entry; all must hold the same.
IpcTensor open_for_all(const PickleValue& handles, const std::vector<std::string>& uuids, const Flavour& flavour) {
  IpcTensor first = open_ipc_tensor(handles, uuids.front(), flavour);
  for (std::size_t worker = 1; worker < uuids.size(); ++worker) {
    const IpcTensor other = open_ipc_tensor(handles, uuids[worker], flavour);
    if (!(other.info == first.info) || std::memcmp(other.data, first.data, first.info.bytes()) != 0)
      throw WorkerError("the stand-in's worker " + std::to_string(worker) + " was sent other bytes than worker 0");
  }
  return first;
}

}  // namespace

Transfer::Transfer(const Flavour& flavour, TransferOptions options, LayerLoad& load, Trace& trace)
    : flavour_(flavour), options_(std::move(options)), load_(load), trace_(trace) {}

void Transfer::check_configured() const {
  if (options_.backend.empty()) {
    throw WorkerError("Weight transfer not configured. Please set weight_transfer_config to enable weight transfer.");
  }
  if (options_.backend != "nccl" && options_.backend != "ipc")
    throw WorkerError("the stand-in has no backend " + options_.backend);
}

void Transfer::init(const Json& info) {
  check_configured();
  if (options_.backend == "nccl") return init_nccl(info);
  InfoClass expected{"IPCWeightTransferInitInfo", "IPCWeightTransferEngine", "init_info", {}, {}};
  if (flavour_.ipc_packed_in_init) expected.optional = {"packed"};
  check_info(info, expected);
  packing_.packed = info_flag(info, "packed", false);
}

void Transfer::init_nccl(const Json& info) {
  check_info(info, nccl_init_class(flavour_));
  GroupPlace place;
  const bool has_id = info.contains("nccl_unique_id_b64") && info["nccl_unique_id_b64"].is_string();
  if (has_id && (info.contains("master_address") || info.contains("master_port")))
    throw WorkerError("pass nccl_unique_id_b64 OR master_address/master_port, not both");
  if (has_id) {
    place.unique_id = decode_base64(info["nccl_unique_id_b64"].get<std::string>());
    if (place.unique_id.size() != kUniqueIdBytes)
      throw WorkerError("nccl_unique_id_b64: expected 128 bytes, found " + std::to_string(place.unique_id.size()));
  } else {
    if (!info.contains("master_address") || !info["master_address"].is_string() || !info.contains("master_port"))
      throw WorkerError("need nccl_unique_id_b64, or both master_address and master_port");
    place.host = info["master_address"].get<std::string>();
  }
  place.port = static_cast<uint16_t>(info_integer(info, "master_port", 0));
  place.rank_offset = static_cast<int>(info_integer(info, "rank_offset", 0));
  place.world_size = static_cast<int>(info_integer(info, "world_size", 0));
  packing_.packed = info_flag(info, "packed", false);
  packing_.buffer_bytes = static_cast<uint64_t>(info_integer(info, "packed_buffer_size_bytes", int64_t{1} << 30));
  const int workers = static_cast<int>(options_.uuids.size());
  if (place.rank_offset < 1 || place.rank_offset + workers > place.world_size) {
    throw WorkerError("NCCL error: invalid argument (ranks " + std::to_string(place.rank_offset) + " to " +
                      std::to_string(place.rank_offset + workers - 1) + " of a world of " +
                      std::to_string(place.world_size) + ")");
  }
  group_.reset();
  group_ = std::make_unique<Collective>(place, workers, trace_);
}

void Transfer::start(LoadFault fault) {
  check_configured();
  if (active_) {
    throw WorkerError(
        "start_weight_update called while a weight update is already active. Call finish_weight_update first.");
  }
  load_.start(fault);
  active_ = true;
}

void Transfer::update(const Json& info) {
  check_configured();
  if (!active_) throw WorkerError("start_weight_update must be called before update_weights.");
  if (options_.backend == "nccl")
    update_nccl(info);
  else
    update_ipc(info);
}

void Transfer::update_raised() {
  if (!flavour_.start_needs_body) active_ = false;
}

void Transfer::finish() {
  check_configured();
  if (!active_) {
    throw WorkerError(flavour_.start_needs_body
                          ? "start_weight_update must be called before finish_weight_update."
                          : "finish_weight_update called without a matching start_weight_update.");
  }
  load_.finish();
  active_ = false;
}

void Transfer::update_nccl(const Json& info) {
  check_info(info, nccl_update_class(flavour_));
  if (info.contains("update_kind") && info["update_kind"] != "dense")
    throw WorkerError("the stand-in knows only update_kind dense");
  const std::vector<tensor::TensorInfo> tensors = info_tensors(info);
  if (!group_) throw WorkerError("NCCL weight transfer not initialized. Call init_transfer_engine() first.");
  Packing packing = packing_;
  if (!flavour_.nccl_packed_in_init) {
    packing.packed = info_flag(info, "packed", false);
    packing.buffer_bytes = static_cast<uint64_t>(info_integer(info, "packed_buffer_size_bytes", int64_t{1} << 30));
  }
  if (packing.packed) return receive_packed(tensors, packing.buffer_bytes);
  for (const tensor::TensorInfo& tensor : tensors) {
    const std::vector<std::byte> bytes = group_->receive(tensor.bytes());
    load_.take({tensor, bytes.data()});
  }
}

// A chunk ends when it has become larger than the buffer; what is left goes last.
void Transfer::receive_packed(const std::vector<tensor::TensorInfo>& tensors, uint64_t buffer_bytes) {
  std::size_t first = 0;
  uint64_t size = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    size += tensors[i].bytes();
    if (size <= buffer_bytes && i + 1 < tensors.size()) continue;
    take_packed(tensors, size == 0 ? std::vector<std::byte>() : group_->receive(size), first, i + 1 - first);
    first = i + 1;
    size = 0;
  }
}

void Transfer::take_packed(const std::vector<tensor::TensorInfo>& tensors, const std::vector<std::byte>& bytes,
                           std::size_t first, std::size_t count) {
  uint64_t offset = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    check_alignment(offset, tensors[i].dtype);
    load_.take({tensors[i], bytes.data() + offset});
    offset += tensors[i].bytes();
  }
}

void Transfer::update_ipc(const Json& info) {
  check_info(info, ipc_update_class(flavour_));
  const PickleValue handles = read_handles(info, options_.insecure_serialization);
  const std::vector<tensor::TensorInfo> tensors = info_tensors(info);
  const bool packed = flavour_.ipc_packed_in_init ? packing_.packed : info_flag(info, "packed", false);
  if (packed) {
    const std::vector<uint64_t> sizes = tensor_sizes(info, tensors.size());
    const IpcTensor buffer = open_for_all(handles, options_.uuids, flavour_);
    uint64_t offset = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      check_alignment(offset, tensors[i].dtype);
      if (sizes[i] != tensors[i].bytes() || offset + sizes[i] > buffer.info.bytes()) {
        throw WorkerError("shape '" + tensor::shape_text(tensors[i].shape) + "' is invalid for input of size " +
                          std::to_string(sizes[i] / tensor::element_bytes(tensors[i].dtype)));
      }
      load_.take({tensors[i], buffer.data + offset});
      offset += sizes[i];
    }
    return;
  }
  if (handles.is(PickleValue::Kind::dict))
    throw WorkerError(length_text("ipc_handles", handles.children().size() / 2, tensors.size()));
  if (!handles.is(PickleValue::Kind::list))
    throw WorkerError("object of type '" + handles.type_name() + "' has no len()");
  if (handles.children().size() != tensors.size())
    throw WorkerError(length_text("ipc_handles", handles.children().size(), tensors.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    IpcTensor opened = open_for_all(handles.children()[i], options_.uuids, flavour_);
    opened.info.name = tensors[i].name;  // dtype and shape are those of the pickle
    load_.take({opened.info, opened.data});
  }
}

}  // namespace vime::stand_in
