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
std::vector<std::size_t> data_order(const std::vector<TensorInfo>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return element_bytes(tensors[a].dtype) > element_bytes(tensors[b].dtype);
  });
  return order;
}

std::string header_text(const std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<uint64_t> offsets(tensors.size());
  uint64_t offset = 0;
  for (const std::size_t i : data_order(tensors)) {
    offsets[i] = offset;
    offset += tensors[i].bytes();
  }
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i];
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

}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path, const std::vector<TensorInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), aside_(path.string() + ".tmp-" + std::to_string(::getpid())) {
  const std::string header = header_text(tensors, metadata);
  for (const std::size_t i : data_order(tensors)) sizes_.push_back(tensors[i].bytes());
  fd_ = UniqueFd(::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd_) throw_errno(ErrorKind::exhausted, "create " + aside_.string());
  unsigned char length[8];
  for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  try {
    write_all(fd_.get(), length, sizeof length, aside_);
    write_all(fd_.get(), header.data(), header.size(), aside_);
  } catch (...) {
    ::unlink(aside_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_) ::unlink(aside_.c_str());
}

void SafetensorsWriter::append(const std::byte* tensor, uint64_t bytes) {
  VIME_CHECK(next_ < sizes_.size() && bytes == sizes_[next_], path_.string() + ": tensors come in another order");
  write_all(fd_.get(), tensor, bytes, aside_);
  ++next_;
}

void SafetensorsWriter::finish(Lasts lasts) {
  VIME_CHECK(next_ == sizes_.size(), path_.string() + ": tensors are missing");
  const bool syncs = lasts == Lasts::for_good;
  if (syncs && ::fsync(fd_.get()) != 0) throw_errno(ErrorKind::exhausted, "fsync " + aside_.string());
  if (::rename(aside_.c_str(), path_.c_str()) != 0) throw_errno(ErrorKind::exhausted, "rename to " + path_.string());
  fd_.reset();
  if (syncs) sync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  for (const TensorView& view : tensors) infos.push_back(view.info);
  SafetensorsWriter writer(path, infos, metadata);
  for (const std::size_t i : data_order(infos)) writer.append(tensors[i].data, tensors[i].info.bytes());
  writer.finish();
}

}  // namespace vime::tensor
