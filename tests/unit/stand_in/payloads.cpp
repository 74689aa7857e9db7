#include "payloads.hpp"

namespace vime::stand_in {
namespace {

std::string raw(uint64_t number, int width) {
  return {reinterpret_cast<const char*>(&number), static_cast<std::size_t>(width)};
}

std::string integer(int64_t value) {
  if (value >= 0 && value < 256) return "K" + raw(static_cast<uint64_t>(value), 1);
  if (value >= 0 && value < 65536) return "M" + raw(static_cast<uint64_t>(value), 2);
  return "\x8a\x08" + raw(static_cast<uint64_t>(value), 8);
}

std::string bytes(const std::string& value) {
  return "C" + raw(value.size(), 1) + value;
}

std::string tuple(const std::vector<int64_t>& values) {
  std::string text = "(";
  for (const int64_t value : values) text += integer(value);
  return text + "t";
}

std::vector<int64_t> strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> result(shape.size(), 1);
  for (std::size_t i = shape.size(); i > 1; --i) result[i - 2] = result[i - 1] * shape[i - 1];
  return result;
}

}  // namespace

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t held = 0;
    for (std::size_t i = 0; i < 3; ++i)
      held = held << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : kDigits[held >> (18 - 6 * i) & 63];
  }
  return text;
}

std::string pickled_arguments(const Handle& handle) {
  return "(ctorch\nTensor\n" + tuple(handle.shape) + tuple(strides(handle.shape)) + integer(0) +
         "ctorch.storage\nTypedStorage\nctorch\n" + handle.dtype + "\n" + integer(0) + bytes(handle.bytes) +
         integer(handle.storage_bytes) + integer(handle.offset) + "\x89" + bytes("/none") + integer(0) +
         bytes(std::string(64, '\0')) + "\x89t";
}

std::string pickled_call(const Handle& handle) {
  return "(ctorch.multiprocessing.reductions\nrebuild_cuda_tensor\n" + pickled_arguments(handle) + "t";
}

std::string pickled_dict(const std::vector<std::string>& uuids, const std::string& value) {
  std::string text = "}";
  for (const std::string& uuid : uuids) text += "X" + raw(uuid.size(), 4) + uuid + value + "s";
  return text;
}

std::string pickled_list(const std::vector<std::string>& items) {
  std::string text = "](";
  for (const std::string& item : items) text += item;
  return text + "e";
}

std::string whole_pickle(const std::string& value) {
  return "\x80\x03" + value + ".";
}

std::string pickled_unique_id(const std::string& text) {
  std::string id = text;
  id.resize(128);
  return whole_pickle("c_ctypes\n_unpickle\ncvllm.distributed.device_communicators.pynccl_wrapper\nncclUniqueId\n}" +
                      bytes(id) + "\x86\x86R");
}

Json update_lists(const Checkpoint& checkpoint, std::size_t first, std::size_t count) {
  Json lists = {{"names", Json::array()}, {"dtype_names", Json::array()}, {"shapes", Json::array()}};
  for (std::size_t i = first; i < first + count; ++i) {
    const tensor::TensorInfo& info = checkpoint[i].info;
    lists["names"].push_back(info.name);
    lists["dtype_names"].push_back(tensor::dtype_name(info.dtype));
    lists["shapes"].push_back(info.shape);
  }
  return lists;
}

}  // namespace vime::stand_in
