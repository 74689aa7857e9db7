#include "data/builtin.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"

namespace vime::data {
namespace {

constexpr std::string_view kPrefix = "builtin:";

struct Set {
  const char* name;
  int digits;
  bool held_out;
};
constexpr Set kSets[] = {{"builtin:sort_digits", 4, false},
                         {"builtin:sort_digits/heldout", 4, true},
                         {"builtin:sort_8_digits", 8, false},
                         {"builtin:sort_8_digits/heldout", 8, true}};

[[noreturn]] void refuse_unknown(const std::string& prompt_data) {
  const std::vector<std::string> names = builtin_names();
  const std::string near = nearest_name(prompt_data, names);
  throw Error(ErrorKind::refused, "expected one of " + join(names, ", ") + ", found \"" + prompt_data + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

const Set& find_set(const std::string& prompt_data) {
  for (const Set& set : kSets) {
    if (prompt_data == set.name) return set;
  }
  refuse_unknown(prompt_data);
}

// All numbers of four digits; of eight, as many as there is room for ids, each once (the step has no factor in common
// with their number) and evenly strewn (it is the golden ratio of it).
std::string digits_of(int64_t id, int digits) {
  constexpr int64_t kNumbers = 100'000'000, kStep = 61'803'399;
  const int64_t number = digits == 4 ? id : id * kStep % kNumbers;
  std::string text = std::to_string(number);
  return std::string(static_cast<size_t>(digits) - text.size(), '0') + text;
}

int64_t ids_of(int digits) {
  return digits == 4 ? 10'000 : kBuiltinIds;
}

}  // namespace

bool is_builtin(std::string_view prompt_data) {
  return prompt_data.substr(0, kPrefix.size()) == kPrefix;
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> names;
  for (const Set& set : kSets) names.push_back(set.name);
  return names;
}

void check_builtin(const std::string& prompt_data) {
  find_set(prompt_data);
}

std::string builtin_alphabet(const std::string& prompt_data) {
  check_builtin(prompt_data);
  return "0123456789=";
}

int64_t builtin_ids(const std::string& prompt_data) {
  return ids_of(find_set(prompt_data).digits);
}

std::vector<Prompt> builtin_prompts(const std::string& prompt_data) {
  const Set& set = find_set(prompt_data);
  std::vector<Prompt> prompts;
  for (int64_t id = 0; id < ids_of(set.digits); ++id) {
    Prompt prompt;
    prompt.id = id;
    prompt.text = digits_of(id, set.digits);
    if (is_held_out(prompt.text) != set.held_out) continue;
    prompt.label = prompt.text;
    std::sort(prompt.label.begin(), prompt.label.end());
    prompt.text += '=';
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

bool is_held_out(std::string_view digits) {
  uint64_t key = 0;
  for (char c : digits) key = mix_key(key, static_cast<unsigned char>(c));
  return key % 20 == 0;
}

}  // namespace vime::data
