#include "base/fingerprint.hpp"

#include <algorithm>
#include <cstring>

namespace vime {

void Fingerprint::add_bytes(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    add(word);
  }
}

void Fingerprint::add_text(std::string_view text) {
  add(text.size());
  add_bytes(text);
}

}  // namespace vime
