#include "weights/manifest.hpp"

#include <utility>

#include "base/error.hpp"

namespace vime::weights {
namespace {

std::vector<Bucket> parse_chunks(Bucket all, const Json& chunks) {
  std::vector<Bucket> buckets;
  size_t at = 0;
  for (const Json& chunk : chunks) {
    if (!chunk.is_array() || chunk.size() != 2 || !chunk[0].is_number_unsigned() || !chunk[1].is_number_unsigned()) {
      throw Error(ErrorKind::refused, "update_info: \"chunks\" must be a list of [tensors, bytes]");
    }
    Bucket& bucket = buckets.emplace_back();
    bucket.bytes = chunk[1].get<uint64_t>();
    for (auto left = chunk[0].get<uint64_t>(); left > 0; --left, ++at) {
      if (at == all.entries.size())
        throw Error(ErrorKind::refused, "update_info: \"chunks\" have more tensors than came");
      const BucketEntry& entry = all.entries[at];
      if (entry.offset + entry.info.bytes() > bucket.bytes) {
        throw Error(ErrorKind::refused, "update_info: " + entry.info.name + " ends behind its chunk");
      }
      bucket.entries.push_back(std::move(all.entries[at]));
    }
  }
  if (at != all.entries.size()) throw Error(ErrorKind::refused, "update_info: \"chunks\" have fewer tensors than came");
  return buckets;
}

std::vector<Bucket> parse_buckets(const Json& update_info) {
  std::vector<Bucket> buckets;
  Bucket all = parse_manifest(update_info);
  if (const auto chunks = update_info.find("chunks"); chunks != update_info.end()) {
    return parse_chunks(std::move(all), *chunks);
  }
  buckets.push_back(std::move(all));
  return buckets;
}

}  // namespace

Json SentManifests::update_info(std::span<const Bucket> buckets) {
  last_ = manifest_key(buckets);
  if (known_.contains(last_)) return {{"manifest", last_}};
  Bucket all;
  Json chunks = Json::array();
  for (const Bucket& bucket : buckets) {
    all.entries.insert(all.entries.end(), bucket.entries.begin(), bucket.entries.end());
    chunks.push_back({bucket.entries.size(), bucket.bytes});
  }
  Json info = manifest_json(all);
  if (buckets.size() != 1) info["chunks"] = std::move(chunks);
  info["manifest"] = last_;
  return info;
}

const std::vector<Bucket>& KeptManifests::buckets(const Json& update_info) {
  if (!update_info.contains("manifest")) {
    last_ = parse_buckets(update_info);
    return last_;
  }
  const std::string key = json_string(update_info, "manifest", "update_info");
  if (!update_info.contains("names")) {
    const auto kept = kept_.find(key);
    if (kept != kept_.end()) return kept->second;
    throw Error(ErrorKind::refused, "update_info: manifest " + key + " was never sent to this engine");
  }
  std::vector<Bucket> buckets = parse_buckets(update_info);
  if (const std::string own = manifest_key(buckets); own != key) {
    throw Error(ErrorKind::refused, "update_info: manifest " + key + " has other tensors than its key, " + own);
  }
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i].key = key + "/" + std::to_string(i);
  return kept_[key] = std::move(buckets);
}

}  // namespace vime::weights
