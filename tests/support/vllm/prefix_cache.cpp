#include "support/vllm/prefix_cache.hpp"

#include <algorithm>

#include "base/random.hpp"

namespace vime::stand_in {
namespace {

constexpr std::size_t kMostCopies = 4;
constexpr std::size_t kMostBlocks = 1u << 20;

}  // namespace

std::vector<uint64_t> PrefixCache::keys_of(const std::string& salt, const std::vector<int32_t>& tokens,
                                           int64_t length) const {
  uint64_t key = salt.size();
  for (const char c : salt) key = mix_key(key, static_cast<unsigned char>(c));
  std::vector<uint64_t> keys;
  for (int64_t at = 0; at < length; ++at) {
    key = mix_key(key, static_cast<uint64_t>(tokens[static_cast<std::size_t>(at)]));
    if ((at + 1) % block_size_ == 0) keys.push_back(key);
  }
  return keys;
}

std::vector<int64_t> PrefixCache::find(const std::string& salt, const std::vector<int32_t>& tokens) const {
  std::vector<int64_t> generations;
  for (const uint64_t key : keys_of(salt, tokens, static_cast<int64_t>(tokens.size()) - 1)) {
    const auto known = generation_of_.find(key);
    if (known == generation_of_.end()) break;
    generations.push_back(known->second);
  }
  return generations;
}

void PrefixCache::add(const std::string& salt, const std::vector<int32_t>& tokens, int64_t computed,
                      int64_t generation) {
  if (generation_of_.size() > kMostBlocks) clear();
  for (const uint64_t key : keys_of(salt, tokens, computed)) generation_of_.emplace(key, generation);
}

void PrefixCache::clear() {
  generation_of_.clear();
  weights_.clear();
}

void PrefixCache::keep_weights(int64_t generation, const std::byte* weights, std::size_t bytes) {
  const bool needed = std::any_of(generation_of_.begin(), generation_of_.end(),
                                  [&](const auto& block) { return block.second == generation; });
  if (!needed) return;
  weights_[generation].assign(weights, weights + bytes);
  if (weights_.size() <= kMostCopies) return;
  weights_.erase(weights_.begin());
  const int64_t oldest = weights_.begin()->first;
  std::erase_if(generation_of_, [&](const auto& block) { return block.second < oldest; });
}

const std::vector<std::byte>& PrefixCache::weights_of(int64_t generation) const {
  return weights_.at(generation);
}

}  // namespace vime::stand_in
