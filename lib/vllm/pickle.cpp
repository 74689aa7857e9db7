#include "vllm/pickle.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace vime::vllm {
namespace {

namespace opcode {
constexpr char kProto = '\x80', kStop = '.', kMark = '(', kTuple = 't', kTuple2 = '\x86', kReduce = 'R';
constexpr char kGlobal = 'c', kEmptyDict = '}', kSetItem = 's', kEmptyList = ']', kAppends = 'e';
constexpr char kText = 'X', kShortBytes = 'C';
constexpr char kInt1 = 'K', kInt2 = 'M', kInt4 = 'J', kLong1 = '\x8a', kFalse = '\x89';
}  // namespace opcode

class Pickle {
 public:
  Pickle() { op(opcode::kProto), bytes_ += '\x03'; }

  void op(char code) { bytes_ += code; }

  void global(std::string_view module, std::string_view name) {
    op(opcode::kGlobal);
    bytes_.append(module) += '\n';
    bytes_.append(name) += '\n';
  }

  void text(std::string_view utf8) {
    op(opcode::kText);
    little_endian(utf8.size(), 4);
    bytes_.append(utf8);
  }

  void bytes(std::string_view content) {
    VIME_CHECK(content.size() < 256, "short bytes have at most 255 bytes");
    op(opcode::kShortBytes);
    little_endian(content.size(), 1);
    bytes_.append(content);
  }

  void integer(uint64_t value) {
    if (value <= 0xff) {
      op(opcode::kInt1), little_endian(value, 1);
    } else if (value <= 0xffff) {
      op(opcode::kInt2), little_endian(value, 2);
    } else if (value <= 0x7fffffff) {
      op(opcode::kInt4), little_endian(value, 4);
    } else {
      // Two's complement: a leading byte of zero keeps a number with the top bit set positive.
      int count = 1;
      while (count < 9 && (count == 8 ? value >> 63 : value >> (8 * count - 1)) != 0) ++count;
      op(opcode::kLong1), little_endian(static_cast<uint64_t>(count), 1), little_endian(value, count);
    }
  }

  void integers(const tensor::Shape& values) {
    op(opcode::kMark);
    for (const int64_t value : values) integer(static_cast<uint64_t>(value));
    op(opcode::kTuple);
  }

  std::string finish() && {
    op(opcode::kStop);
    return std::move(bytes_);
  }

 private:
  void little_endian(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  }

  std::string bytes_;
};

tensor::Shape row_major_strides(const tensor::Shape& shape) {
  tensor::Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

// The arguments of torch.multiprocessing.reductions.rebuild_cuda_tensor, in its order.
void add_arguments(Pickle& pickle, const tensor::TensorInfo& info, const DevicePlace& place) {
  pickle.op(opcode::kMark);
  pickle.global("torch", "Tensor");
  pickle.integers(info.shape);
  pickle.integers(row_major_strides(info.shape));
  pickle.integer(0);  // where the tensor begins in its storage, in elements
  pickle.global("torch.storage", "TypedStorage");
  pickle.global("torch", tensor::dtype_name(info.dtype));
  pickle.integer(0);  // device number: the receiver puts its own in
  pickle.bytes({reinterpret_cast<const char*>(place.handle.data()), place.handle.size()});
  pickle.integer(info.bytes());
  pickle.integer(place.offset);
  pickle.op(opcode::kFalse);  // requires_grad
  // PyTorch counts a storage's users in a shared file, and gets along where there is none. No event: the bytes are
  // there.
  pickle.bytes("/vime_none");
  pickle.integer(0);
  pickle.bytes(std::string(64, '\0'));
  pickle.op(opcode::kFalse);
  pickle.op(opcode::kTuple);
}

void add_places(Pickle& pickle, const tensor::TensorInfo& info, const DevicePlaces& workers, bool with_function) {
  if (workers.empty()) throw Error(ErrorKind::refused, "IPC handles of " + info.name + ": there is no device");
  std::set<std::string_view> seen;
  pickle.op(opcode::kEmptyDict);
  for (const DevicePlace& place : workers) {
    if (!seen.insert(place.device_uuid).second) {
      throw Error(ErrorKind::refused,
                  "IPC handles of " + info.name + ": there are two for the device " + place.device_uuid);
    }
    pickle.text(place.device_uuid);
    if (with_function) {
      pickle.op(opcode::kMark);
      pickle.global("torch.multiprocessing.reductions", "rebuild_cuda_tensor");
    }
    add_arguments(pickle, info, place);
    if (with_function) pickle.op(opcode::kTuple);
    pickle.op(opcode::kSetItem);
  }
}

}  // namespace

std::string unique_id_pickle(const NcclUniqueId& id) {
  Pickle pickle;
  pickle.global("_ctypes", "_unpickle");
  pickle.global("vllm.distributed.device_communicators.pynccl_wrapper", "ncclUniqueId");
  pickle.op(opcode::kEmptyDict);
  pickle.bytes({reinterpret_cast<const char*>(id.data()), id.size()});
  pickle.op(opcode::kTuple2);
  pickle.op(opcode::kTuple2);
  pickle.op(opcode::kReduce);
  return std::move(pickle).finish();
}

std::string packed_ipc_pickle(const DevicePlaces& workers, uint64_t bytes) {
  VIME_CHECK(bytes <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()), "a buffer of more than 2^63 bytes");
  Pickle pickle;
  add_places(pickle, {"the packed buffer", tensor::DType::u8, {static_cast<int64_t>(bytes)}}, workers, false);
  return std::move(pickle).finish();
}

std::string tensors_ipc_pickle(const Dialect& dialect, std::span<const PlacedTensor> tensors) {
  Pickle pickle;
  pickle.op(opcode::kEmptyList);
  pickle.op(opcode::kMark);
  for (const PlacedTensor& tensor : tensors) {
    add_places(pickle, tensor.info, tensor.workers, dialect.ipc_value_has_function);
  }
  pickle.op(opcode::kAppends);
  return std::move(pickle).finish();
}

}  // namespace vime::vllm
