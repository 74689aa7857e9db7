#include "support/vllm/ipc_payload.hpp"

#include <map>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "support/vllm/failures.hpp"
#include "weights/shared_arena.hpp"

namespace vime::stand_in {
namespace {

using Kind = PickleValue::Kind;

constexpr std::size_t kHandleBytes = 64;
constexpr std::size_t kArguments = 15;

[[noreturn]] void refuse(const std::string& text) {
  throw WorkerError(text);
}

const PickleValue& entry_of(const PickleValue& handles, const std::string& uuid) {
  if (!handles.is(Kind::dict)) refuse("'" + handles.type_name() + "' object has no attribute 'keys'");
  std::vector<std::string> known;
  const PickleItems& items = handles.children();
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].text == uuid) return items[i + 1];
    known.push_back("'" + items[i].text + "'");
  }
  refuse("IPC handle not found for GPU UUID " + uuid + ". Available UUIDs: [" + join(known, ", ") + "]");
}

// The 15 arguments out of a release's form of the value.
const PickleItems& arguments_of(const PickleValue& value, const Flavour& flavour) {
  if (!value.is(Kind::tuple)) refuse("cannot unpack non-iterable " + value.type_name() + " object");
  const PickleItems& items = value.children();
  if (!flavour.handle_has_function) {
    if (items.size() < kArguments) refuse("list assignment index out of range");
    if (items.size() > kArguments) {
      refuse("rebuild_cuda_tensor() takes 15 positional arguments but " + std::to_string(items.size()) + " were given");
    }
    return items;
  }
  if (items.size() > 2) refuse("too many values to unpack (expected 2)");
  if (items.size() < 2) refuse("not enough values to unpack (expected 2, got " + std::to_string(items.size()) + ")");
  if (!items[0].is(Kind::global) || items[0].text != "torch.multiprocessing.reductions rebuild_cuda_tensor")
    refuse("'" + items[0].type_name() + "' object is not callable");
  if (!items[1].is(Kind::tuple) || items[1].children().size() != kArguments)
    refuse("list assignment index out of range");
  return items[1].children();
}

void expect(const PickleValue& value, Kind kind, std::size_t index, const char* wanted) {
  if (value.is(kind)) return;
  refuse("rebuild_cuda_tensor: argument " + std::to_string(index) + ": expected " + wanted + ", found " +
         value.type_name());
}

tensor::Shape sizes_of(const PickleValue& value, std::size_t index) {
  const PickleValue* tuple = &value;
  if (value.is(Kind::call) && value.children()[0].text == "torch Size" && value.children()[1].children().size() == 1)
    tuple = &value.children()[1].children()[0];
  expect(*tuple, Kind::tuple, index, "a tuple of ints");
  tensor::Shape sizes;
  for (const PickleValue& item : tuple->children()) {
    expect(item, Kind::integer, index, "a tuple of ints");
    sizes.push_back(item.integer);
  }
  return sizes;
}

tensor::DType dtype_of(const PickleValue& value) {
  expect(value, Kind::global, 5, "a torch.dtype");
  if (!value.text.starts_with("torch ")) refuse("No module named '" + value.text.substr(0, value.text.find(' ')) + "'");
  const std::string name = value.text.substr(6);
  try {
    return tensor::parse_dtype_name(name);
  } catch (const Error&) {
    refuse("module 'torch' has no attribute '" + name + "'");
  }
}

void check_types(const PickleItems& arguments) {
  const auto is_global = [&](std::size_t index, const char* name) {
    if (!arguments[index].is(Kind::global) || arguments[index].text != name)
      refuse("rebuild_cuda_tensor: argument " + std::to_string(index) + ": expected the class " + name);
  };
  is_global(0, "torch Tensor");
  is_global(4, "torch.storage TypedStorage");
  for (const std::size_t index : {3, 6, 8, 9, 12}) expect(arguments[index], Kind::integer, index, "int");
  for (const std::size_t index : {7, 11, 13}) expect(arguments[index], Kind::bytes, index, "bytes");
  for (const std::size_t index : {10, 14}) expect(arguments[index], Kind::boolean, index, "bool");
  if (arguments[13].text.size() != kHandleBytes)
    refuse("an event handle has 64 bytes, not " + std::to_string(arguments[13].text.size()));
  if (arguments[14].integer != 0) refuse("CUDA error: invalid resource handle (cudaIpcOpenEventHandle)");
}

// The raw 64 bytes, or a version byte and 'c' before them.
std::string plain_handle(const std::string& handle, const Flavour& flavour) {
  if (handle.size() == kHandleBytes) return handle;
  if (handle.size() < 2) refuse("Expected a sharable handle, found " + std::to_string(handle.size()) + " bytes");
  if (static_cast<unsigned char>(handle[0]) > flavour.highest_handle_version) {
    refuse("received sharable handle from a future version of torch that this version does not know how to handle");
  }
  if (handle[1] == 'e') refuse("expandable segments handles are not supported");
  if (handle[1] != 'c' || handle.size() != kHandleBytes + 2) refuse("unexpected type of sharable handle");
  return handle.substr(2);
}

std::shared_ptr<weights::Mapping> open_memory(const std::string& handle) {
  static std::map<std::string, std::weak_ptr<weights::Mapping>> open;  // the engine's thread only
  const std::string text = handle.substr(0, handle.find('\0'));
  if (auto known = open[text].lock()) return known;
  if (!text.starts_with("memfd:")) refuse("CUDA error: invalid resource handle");
  try {
    auto mapping = std::make_shared<weights::SharedMapping>(text);
    open[text] = mapping;
    return mapping;
  } catch (const Error& error) {
    refuse(std::string("CUDA error: invalid argument (") + error.what() + ")");
  }
}

void check_contiguous(const tensor::Shape& shape, const tensor::Shape& strides) {
  int64_t expected = 1;
  bool fits = shape.size() == strides.size();
  for (std::size_t i = shape.size(); fits && i > 0; --i) {
    if (shape[i - 1] != 1 && strides[i - 1] != expected) fits = false;
    expected *= shape[i - 1];
  }
  if (!fits) {
    refuse("setStorage: sizes " + tensor::shape_text(shape) + " with strides " + tensor::shape_text(strides) +
           " are not contiguous, which the stand-in takes for a mistake");
  }
}

}  // namespace

IpcTensor open_ipc_tensor(const PickleValue& handles, const std::string& uuid, const Flavour& flavour) {
  const PickleItems& arguments = arguments_of(entry_of(handles, uuid), flavour);
  check_types(arguments);
  IpcTensor opened;
  opened.info = {"", dtype_of(arguments[5]), sizes_of(arguments[1], 1)};
  check_contiguous(opened.info.shape, sizes_of(arguments[2], 2));
  const int64_t storage = arguments[8].integer;
  const int64_t base = arguments[9].integer;
  const int64_t first = arguments[3].integer * static_cast<int64_t>(tensor::element_bytes(opened.info.dtype));
  const auto bytes = static_cast<int64_t>(opened.info.bytes());
  if (storage < 0 || base < 0 || first < 0 || first + bytes > storage) {
    refuse("setStorage: sizes " + tensor::shape_text(opened.info.shape) + " requiring a storage size of " +
           std::to_string(first + bytes) + " are out of bounds for storage of size " + std::to_string(storage));
  }
  opened.memory = open_memory(plain_handle(arguments[7].text, flavour));
  if (static_cast<uint64_t>(base + storage) > opened.memory->bytes())
    refuse("CUDA error: an illegal memory access was encountered");
  opened.data = opened.memory->data() + base + first;
  return opened;
}

}  // namespace vime::stand_in
