// A number that tells one sequence of words and texts from another, made piece by piece. Checkpoints keep fingerprints,
// so what is added gives the same value for ever. Against accidents only: whoever wants two sequences of one
// fingerprint can make them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/random.hpp"

namespace vime {

class Fingerprint {
 public:
  explicit Fingerprint(uint64_t first) : key_(first) {}

  void add(uint64_t word) { key_ = mix_key(key_, word); }
  // Eight at a time, as they lie in memory; a shorter rest is filled up with zeros.
  void add_bytes(std::string_view bytes);
  // The length, then the bytes.
  void add_text(std::string_view text);

  uint64_t value() const { return key_; }

 private:
  uint64_t key_;
};

}  // namespace vime
