// The "normalizer" of tokenizer.json: changes text before it is cut into pieces. Immutable; any thread.
#pragma once

#include <memory>
#include <string>

#include "base/json.hpp"

namespace vime::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;  // well-formed UTF-8 before and after
};

// NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, ByteLevel, Sequence; null and an absent one
// give nullptr. Error{refused} names any other.
std::unique_ptr<const Normalizer> make_normalizer(const Json& component, const std::string& where, int depth = 0);

}  // namespace vime::text
