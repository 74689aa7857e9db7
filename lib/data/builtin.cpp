#include "data/builtin.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"

namespace vime::data {
namespace {

constexpr std::string_view kPrefix = "builtin:";
constexpr const char* kSortDigits = "builtin:sort_digits";
constexpr const char* kSortDigitsHeldOut = "builtin:sort_digits/heldout";

[[noreturn]] void refuse_unknown(const std::string& prompt_data) {
  const std::vector<std::string> names = builtin_names();
  const std::string near = nearest_name(prompt_data, names);
  throw Error(ErrorKind::refused, "expected one of " + join(names, ", ") + ", found \"" + prompt_data + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

std::vector<Prompt> sort_digits(bool held_out) {
  std::vector<Prompt> prompts;
  for (int number = 0; number < 10000; ++number) {
    char digits[8];
    std::snprintf(digits, sizeof digits, "%04d", number % 10000);
    if (is_held_out(digits) != held_out) continue;
    std::string sorted = digits;
    std::sort(sorted.begin(), sorted.end());
    Prompt prompt;
    prompt.id = number;
    prompt.text = std::string(digits) + "=";
    prompt.label = sorted;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

bool is_builtin(std::string_view prompt_data) {
  return prompt_data.substr(0, kPrefix.size()) == kPrefix;
}

std::vector<std::string> builtin_names() {
  return {kSortDigits, kSortDigitsHeldOut};
}

void check_builtin(const std::string& prompt_data) {
  if (prompt_data != kSortDigits && prompt_data != kSortDigitsHeldOut) refuse_unknown(prompt_data);
}

std::string builtin_alphabet(const std::string& prompt_data) {
  check_builtin(prompt_data);
  return "0123456789=";
}

std::vector<Prompt> builtin_prompts(const std::string& prompt_data) {
  if (prompt_data == kSortDigits) return sort_digits(false);
  if (prompt_data == kSortDigitsHeldOut) return sort_digits(true);
  refuse_unknown(prompt_data);
}

bool is_held_out(std::string_view digits) {
  uint64_t key = 0;
  for (char c : digits) key = mix_key(key, static_cast<unsigned char>(c));
  return key % 20 == 0;
}

}  // namespace vime::data
