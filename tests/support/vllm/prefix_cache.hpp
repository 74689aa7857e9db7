// The prefix cache, with what makes it dangerous: blocks of tokens whose keys and values come from weights that are no
// longer there. A block is known by its tokens, all tokens before it and the cache salt; its keys and values are made
// again from a copy of the weights that it was first computed with. Owned by the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vime::stand_in {

class PrefixCache {
 public:
  explicit PrefixCache(int64_t block_size) : block_size_(block_size) {}

  // The weights' generations of the blocks at the start of `tokens` that are known, without the last token, which is
  // always computed.
  std::vector<int64_t> find(const std::string& salt, const std::vector<int32_t>& tokens) const;
  // Tokens [0, computed) have been computed: by `generation` where no block was known.
  void add(const std::string& salt, const std::vector<int32_t>& tokens, int64_t computed, int64_t generation);
  void clear();

  // Before the weights change. Copies of generations that no block refers to are not kept, and of the others only the
  // last few: older blocks are forgotten.
  void keep_weights(int64_t generation, const std::byte* weights, std::size_t bytes);
  const std::vector<std::byte>& weights_of(int64_t generation) const;

  int64_t block_size() const { return block_size_; }

 private:
  std::vector<uint64_t> keys_of(const std::string& salt, const std::vector<int32_t>& tokens, int64_t length) const;

  int64_t block_size_;
  std::map<uint64_t, int64_t> generation_of_;  // by block key
  std::map<int64_t, std::vector<std::byte>> weights_;
};

}  // namespace vime::stand_in
