// The regex reward of a vime that was built without PCRE2: it says so.
#include "base/error.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {

struct Regex::State {};

Regex::Regex(const std::string&) {
  throw Error(ErrorKind::refused, "reward type \"regex\": this vime was built without PCRE2",
              "install libpcre2-dev and libutf8proc-dev and build with -DVIME_TOKENIZERS=ON");
}
Regex::~Regex() = default;

Score Regex::score(std::string_view, const std::optional<std::string>&) const {
  return no_score(Missing::failed, "built without PCRE2");
}

}  // namespace vime::reward
