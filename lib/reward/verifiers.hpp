// The built-in rewards as pure functions of response and label; any thread may call. Each gives a number in [0, 1], or
// nothing when the label itself is none that it can compare with. None takes more than linear time in the response.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reward/score.hpp"

namespace vime::reward {

// 1 when the bytes are equal, else 0.
double exact_match(std::string_view response, std::string_view label);

// Half for the share of the label's positions at which the response has the same byte, half for an exact answer.
// Missing positions are wrong, extra bytes only cost the exact half. An empty label is matched only by an empty
// response.
double position_match(std::string_view response, std::string_view label);

// F1 of the words, as in SQuAD: lower case (ASCII), punctuation and the articles a, an, the taken out, words counted as
// often as they occur; 2pr/(p+r). Two empty texts are equal, one empty text is 0.
double f1(std::string_view response, std::string_view label);

// 1 when the response's answer is the label's number (see number.hpp for what a number is). The answer is the first
// number after the last "####", else after the last "answer is", "answer:" or "answer =", else, and where none follows,
// the last number of the response: one guess, however many are listed. The label's number is the last in its text.
// - Two whole numbers must agree digit by digit, all others within a relative 1e-6.
// - When the label has a unit, a unit in the answer must be of the same kind and is converted; no unit means the
//   label's. When the label has none, the answer's does not matter.
// - A percent sign on one side only: p and p/100 both count. Two different currency signs never agree.
std::optional<double> numeric(std::string_view response, std::string_view label);

// 1 when the content of the response's last \boxed{...} is the label, which may be boxed itself. An unclosed last box
// is no answer. Both sides are brought to one form (latex.hpp) and then agree when they are the same text or when
// - both are numbers of equal value: fractions, mixed numbers, decimals, roots and multiples of pi. A response that is
// a sum, product,
//   power or difference counts as a number only where the label uses that operator, and a whole-number label asks for a
//   plain number: the task handed back ("12*13", "24/2") is no answer.
// - a unit in \text{} behind a number stands on one side only; where both have one, it must be the same text
// - both are tuples or intervals with the same brackets and equal elements in order, sets or bare lists with equal
//   elements in any order, or unions of such.
std::optional<double> boxed(std::string_view response, std::string_view label);

// 1 when the letter that the response states is the label, a letter A to J ("B", "(b)", "B."). The statement is the
// content of the last \boxed{...}; else the line behind the last "answer", where a letter that comes at once counts
// ("is (B), because A is wrong"); else the last line that is not empty. Otherwise it must name one letter: "A or B",
// "A B C D" and "A, B" are none. "I" and "A" before a small-letter word are words.
std::optional<double> choice(std::string_view response, std::string_view label);

// A compiled regular expression (PCRE2, UTF-8). `score` looks at the last 16 KiB of the response, and gives no score
// (Missing::limit) beyond a fixed number of steps, so that no response can hold up the run.
class Regex {
 public:
  // Error{refused} naming the offset where the expression is wrong; and when vime was built without PCRE2.
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // 1 when it matches anywhere. With a capture group and a `label`: 1 when group 1 of its last match, spaces around it
  // aside, is the label.
  Score score(std::string_view response, const std::optional<std::string>& label) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The content of the last \boxed{...}, braces balanced. Nothing when there is none or its braces do not close.
std::optional<std::string_view> last_boxed(std::string_view text);

}  // namespace vime::reward
