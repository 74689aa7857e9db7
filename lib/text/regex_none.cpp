// For builds without PCRE2 (VIME_TOKENIZERS=OFF): no expression can be made, so nothing is ever searched.
#include "base/error.hpp"
#include "text/regex.hpp"

namespace vime::text {

struct Regex::Compiled {};
struct Regex::Search::State {};

Regex::Regex(const std::string&) {
  throw Error(ErrorKind::refused, "this build cannot read tokenizer.json: it was made without regular expressions",
              "configure with -DVIME_TOKENIZERS=ON (needs libpcre2-dev and libutf8proc-dev)");
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Search::Search(const Regex&) {}
Regex::Search::~Search() = default;
void Regex::Search::start(std::string_view) {}
bool Regex::Search::next(size_t&, size_t&) {
  return false;
}

}  // namespace vime::text
