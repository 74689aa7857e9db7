#include "reward/verifiers.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include "reward/number.hpp"

namespace vime::reward {
namespace {

std::vector<std::string> f1_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (std::isspace(byte)) {
      finish();
    } else if (!std::ispunct(byte)) {
      word += static_cast<char>(std::tolower(byte));
    }
  }
  finish();
  return words;
}

// Where the statement of the answer begins, or nothing when the response marks none.
std::optional<size_t> after_marker(std::string_view response) {
  const size_t hashes = response.rfind("####");
  if (hashes != std::string_view::npos) return hashes + 4;
  std::string lower(response);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (size_t at = lower.rfind("answer"); at != std::string::npos; at = at == 0 ? at : lower.rfind("answer", at - 1)) {
    const std::string_view rest = std::string_view(lower).substr(at + 6);
    for (const std::string_view sign : {" is", ":", " :", "=", " ="}) {
      if (rest.substr(0, sign.size()) == sign) return at + 6 + sign.size();
    }
    if (at == 0) break;
  }
  return std::nullopt;
}

bool same_quantity(const Number& answer, const Number& label) {
  if (!answer.currency.empty() && !label.currency.empty() && answer.currency != label.currency) return false;
  if (answer.percent != label.percent) {
    return same_value(answer, label) ||
           close(answer.value / (answer.percent ? 100 : 1), label.value / (label.percent ? 100 : 1));
  }
  const bool converts = !label.unit.dimension.empty() && !answer.unit.dimension.empty();
  if (!converts) return same_value(answer, label);
  if (answer.unit.dimension != label.unit.dimension) return false;
  if (answer.unit.factor == label.unit.factor) return same_value(answer, label);
  return close(answer.value * answer.unit.factor, label.value * label.unit.factor);
}

}  // namespace

double exact_match(std::string_view response, std::string_view label) {
  return response == label ? 1.0 : 0.0;
}

double position_match(std::string_view response, std::string_view label) {
  if (label.empty()) return response.empty() ? 1.0 : 0.0;
  size_t right = 0;
  for (size_t i = 0; i < std::min(response.size(), label.size()); ++i) right += response[i] == label[i] ? 1 : 0;
  return 0.5 * static_cast<double>(right) / static_cast<double>(label.size()) + 0.5 * exact_match(response, label);
}

double f1(std::string_view response, std::string_view label) {
  const std::vector<std::string> given = f1_words(response), wanted = f1_words(label);
  if (given.empty() || wanted.empty()) return given.empty() && wanted.empty() ? 1.0 : 0.0;
  std::unordered_map<std::string, size_t> left;
  for (const std::string& word : wanted) ++left[word];
  size_t common = 0;
  for (const std::string& word : given) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  return 2.0 * static_cast<double>(common) / static_cast<double>(given.size() + wanted.size());
}

std::optional<double> numeric(std::string_view response, std::string_view label) {
  const std::optional<Number> wanted = last_number(label);
  if (!wanted) return std::nullopt;
  std::optional<Number> answer;
  if (const std::optional<size_t> from = after_marker(response)) answer = next_number(response, *from);
  if (!answer) answer = last_number(response);
  return answer && same_quantity(*answer, *wanted) ? 1.0 : 0.0;
}

std::optional<std::string_view> last_boxed(std::string_view text) {
  constexpr std::string_view kOpen = "\\boxed{";
  const size_t at = text.rfind(kOpen);
  if (at == std::string_view::npos) return std::nullopt;
  const size_t begin = at + kOpen.size();
  int depth = 1;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;  // an escaped brace is no bracket
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return text.substr(begin, i - begin);
    }
  }
  return std::nullopt;
}

}  // namespace vime::reward
