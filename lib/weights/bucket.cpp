#include "weights/bucket.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "base/strings.hpp"

namespace vime::weights {
namespace {

uint64_t aligned(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

std::vector<Bucket> pack_buckets(const std::vector<tensor::TensorInfo>& tensors, uint64_t buffer_bytes,
                                 uint64_t alignment) {
  std::vector<Bucket> buckets;
  Bucket open;
  for (const tensor::TensorInfo& info : tensors) {
    uint64_t offset = aligned(open.bytes, std::max<uint64_t>(alignment, tensor::element_bytes(info.dtype)));
    if (!open.entries.empty() && offset + info.bytes() > buffer_bytes) {
      buckets.push_back(std::exchange(open, {}));
      offset = 0;
    }
    open.entries.push_back({info, offset});
    open.bytes = offset + info.bytes();
  }
  if (!open.entries.empty()) buckets.push_back(std::move(open));
  return buckets;
}

Bucket bucket_of(const std::vector<tensor::TensorInfo>& tensors) {
  std::vector<Bucket> buckets = pack_buckets(tensors, UINT64_MAX);
  return buckets.empty() ? Bucket{} : std::move(buckets[0]);
}

std::vector<ArenaChunk> arena_chunks(const std::vector<PlacedTensor>& tensors, uint64_t chunk_bytes) {
  std::vector<ArenaChunk> chunks;
  uint64_t most = 0;  // bytes of the last chunk
  for (const PlacedTensor& tensor : tensors) {
    const uint64_t end = tensor.offset + tensor.info.bytes();
    if (chunks.empty() || end - chunks.back().begin > most) {
      const uint64_t left = tensors.back().offset + tensors.back().info.bytes() - tensor.offset;
      most = std::min(chunk_bytes, std::max(left / 2, chunk_bytes / 16));
      chunks.push_back({tensor.offset, {}});
    }
    ArenaChunk& chunk = chunks.back();
    VIME_CHECK(tensor.offset >= chunk.begin, tensor.info.name + " is not in the arena's order");
    chunk.bucket.entries.push_back({tensor.info, tensor.offset - chunk.begin});
    chunk.bucket.bytes = end - chunk.begin;
  }
  return chunks;
}

void pack_bucket(const Bucket& bucket, std::span<const tensor::TensorView>& left, std::byte* into) {
  for (const BucketEntry& entry : bucket.entries) {
    VIME_CHECK(!left.empty() && left.front().info == entry.info, "no bytes for " + entry.info.name);
    std::copy_n(left.front().data, entry.info.bytes(), into + entry.offset);
    left = left.subspan(1);
  }
}

Json manifest_json(const Bucket& bucket) {
  Json names = Json::array(), dtypes = Json::array(), shapes = Json::array(), offsets = Json::array();
  for (const BucketEntry& entry : bucket.entries) {
    names.push_back(entry.info.name);
    dtypes.push_back(tensor::dtype_name(entry.info.dtype));
    shapes.push_back(entry.info.shape);
    offsets.push_back(entry.offset);
  }
  return {{"names", names}, {"dtype_names", dtypes}, {"shapes", shapes}, {"tensor_offsets", offsets}};
}

std::string manifest_key(std::span<const Bucket> buckets) {
  Fingerprint key(1);
  for (const Bucket& bucket : buckets) {
    key.add(bucket.entries.size());
    for (const BucketEntry& entry : bucket.entries) {
      key.add_text(entry.info.name);
      key.add(static_cast<uint64_t>(entry.info.dtype));
      key.add(entry.info.shape.size());
      for (const int64_t size : entry.info.shape) key.add(static_cast<uint64_t>(size));
      key.add(entry.offset);
    }
  }
  return hex(key.value());
}

Bucket parse_manifest(const Json& update_info) {
  const std::string what = "update_info";
  const std::vector<const char*> keys = {"names", "dtype_names", "shapes", "tensor_offsets"};
  for (const char* key : keys) {
    if (!json_member(update_info, key, what).is_array()) {
      throw Error(ErrorKind::refused, what + ": \"" + key + "\" must be a list");
    }
    if (update_info.at(key).size() != update_info.at("names").size()) {
      throw Error(ErrorKind::refused, what + ": " + std::to_string(update_info.at("names").size()) + " names but " +
                                          std::to_string(update_info.at(key).size()) + " " + key);
    }
  }
  Bucket bucket;
  for (size_t i = 0; i < update_info.at("names").size(); ++i) {
    BucketEntry entry;
    try {
      entry.info.name = update_info.at("names")[i].get<std::string>();
      entry.info.dtype = tensor::parse_dtype_name(update_info.at("dtype_names")[i].get<std::string>());
      entry.info.shape = update_info.at("shapes")[i].get<tensor::Shape>();
      entry.offset = update_info.at("tensor_offsets")[i].get<uint64_t>();
    } catch (const Json::exception& error) {
      throw Error(ErrorKind::refused, what + ": entry " + std::to_string(i) + ": " + error.what());
    }
    if (entry.offset % tensor::element_bytes(entry.info.dtype) != 0) {
      throw Error(ErrorKind::refused, what + ": " + entry.info.name + " begins at byte " +
                                          std::to_string(entry.offset) + ", which is no multiple of its element size");
    }
    bucket.bytes = std::max(bucket.bytes, entry.offset + entry.info.bytes());
    bucket.entries.push_back(std::move(entry));
  }
  return bucket;
}

}  // namespace vime::weights
