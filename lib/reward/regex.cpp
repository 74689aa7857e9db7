#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {
namespace {

constexpr size_t kLookedAt = 16384;      // bytes at the response's end
constexpr uint32_t kMostSteps = 500000;  // items of the expression tried, over all matches of one response
constexpr uint32_t kMatchLimit = 200000;
constexpr uint32_t kHeapLimitKib = 65536;

template <typename T, void (*release)(T*)>
struct Release {
  void operator()(T* held) const { release(held); }
};
using Code = std::unique_ptr<pcre2_code, Release<pcre2_code, pcre2_code_free>>;
using Context = std::unique_ptr<pcre2_match_context, Release<pcre2_match_context, pcre2_match_context_free>>;
using Match = std::unique_ptr<pcre2_match_data, Release<pcre2_match_data, pcre2_match_data_free>>;

std::string error_text(int code) {
  PCRE2_UCHAR text[160] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// PCRE2 calls this before every item of the expression. Its own match limit starts anew with each match and does not
// count start positions that fail at once, so the steps are counted here as well.
int count_step(pcre2_callout_block*, void* steps) {
  return ++*static_cast<uint32_t*>(steps) > kMostSteps ? PCRE2_ERROR_MATCHLIMIT : 0;
}

}  // namespace

struct Regex::State {
  Code code;
  uint32_t groups = 0;
};

Regex::Regex(const std::string& pattern) : state_(std::make_unique<State>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  state_->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
                    &error, &offset, nullptr));
  if (!state_->code) {
    throw Error(ErrorKind::refused, "regular expression \"" + pattern + "\": " + error_text(error) + " at offset " +
                                        std::to_string(offset));
  }
  pcre2_pattern_info(state_->code.get(), PCRE2_INFO_CAPTURECOUNT, &state_->groups);
}

Regex::~Regex() = default;

Score Regex::score(std::string_view response, const std::optional<std::string>& label) const {
  const std::string_view text = response.substr(response.size() - std::min(response.size(), kLookedAt));
  const Context context(pcre2_match_context_create(nullptr));
  const Match match(pcre2_match_data_create_from_pattern(state_->code.get(), nullptr));
  if (!context || !match) throw Error(ErrorKind::exhausted, "no memory to match a regular expression");
  uint32_t steps = 0;
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  pcre2_set_callout(context.get(), count_step, &steps);
  std::optional<std::string> captured;
  bool matched = false;
  for (size_t from = 0; from <= text.size();) {
    const int found = pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0,
                                  match.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return no_score(Missing::limit, "the regular expression was given up: " + error_text(found));
    matched = true;
    if (!label || state_->groups == 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    const bool has_group = found > 1 && ends[2] != PCRE2_UNSET;
    captured = has_group ? trim(text.substr(ends[2], ends[3] - ends[2])) : "";
    from = std::max(ends[1], from + 1);
    // A new match begins at a character, never inside one.
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  }
  const bool right = matched && (!captured || *captured == trim(*label));
  return score_of(right ? 1.0 : 0.0);
}

}  // namespace vime::reward
