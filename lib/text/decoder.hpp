// The "decoder" of tokenizer.json: tokens back into text. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::text {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Changes the tokens in place; they may become fewer. Joined, they are the text.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

// ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder, Sequence; null gives nullptr (tokens are then
// joined with spaces). Error{refused} names any other.
std::unique_ptr<const Decoder> make_decoder(const Json& component, const std::string& where, int depth = 0);

}  // namespace vime::text
