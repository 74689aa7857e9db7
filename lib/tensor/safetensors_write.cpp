#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tensor/safetensors.hpp"

namespace vime::tensor {
namespace {

void write_all(int fd, const void* data, uint64_t bytes, const fs::path& path) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    // Linux moves at most 2 GiB a call anyway.
    const ssize_t written = ::write(fd, at, std::min<uint64_t>(bytes, 1u << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_errno(ErrorKind::exhausted, "write " + path.string());
    }
    at += written;
    bytes -= static_cast<uint64_t>(written);
  }
}

// Largest elements first, equal ones as given: every tensor is aligned and no gap arises (other readers refuse gaps).
std::vector<std::size_t> data_order(const std::vector<TensorView>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return element_bytes(tensors[a].info.dtype) > element_bytes(tensors[b].info.dtype);
  });
  return order;
}

std::string header_text(const std::vector<TensorView>& tensors, const std::vector<std::size_t>& order,
                        const std::map<std::string, std::string>& metadata) {
  std::vector<uint64_t> offsets(tensors.size());
  uint64_t offset = 0;
  for (const std::size_t i : order) {
    offsets[i] = offset;
    offset += tensors[i].info.bytes();
  }
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i].info;
    VIME_CHECK(names.insert(info.name).second && info.name != "__metadata__",
               "tensor name \"" + info.name + "\" is taken");
    header[info.name] = {{"dtype", safetensors_name(info.dtype)},
                         {"shape", info.shape},
                         {"data_offsets", {offsets[i], offsets[i] + info.bytes()}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

void write_to(const fs::path& path, const std::vector<TensorView>& tensors,
              const std::map<std::string, std::string>& metadata) {
  const std::vector<std::size_t> order = data_order(tensors);
  const std::string header = header_text(tensors, order, metadata);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) throw_errno(ErrorKind::exhausted, "create " + path.string());
  unsigned char length[8];
  for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  write_all(fd.get(), length, sizeof length, path);
  write_all(fd.get(), header.data(), header.size(), path);
  for (const std::size_t i : order) write_all(fd.get(), tensors[i].data, tensors[i].info.bytes(), path);
  if (::fsync(fd.get()) != 0) throw_errno(ErrorKind::exhausted, "fsync " + path.string());
}

}  // namespace

void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const fs::path aside = path.string() + ".tmp-" + std::to_string(::getpid());
  try {
    write_to(aside, tensors, metadata);
    if (::rename(aside.c_str(), path.c_str()) != 0) throw_errno(ErrorKind::exhausted, "rename to " + path.string());
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_directory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace vime::tensor
