#include "reward/verifiers.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "reward/builtin.hpp"

using namespace vime;
using namespace vime::reward;

namespace {

struct Case {
  std::string response, label;
  double score;
};

void check_table(const std::function<std::optional<double>(std::string_view, std::string_view)>& formula,
                 const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    CAPTURE(c.response);
    CAPTURE(c.label);
    const std::optional<double> score = formula(c.response, c.label);
    REQUIRE(score);
    CHECK(*score == doctest::Approx(c.score));
  }
}

std::string repeated(const std::string& text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out;
}

}  // namespace

TEST_CASE("numeric takes the last number, or the first after a marked answer") {
  check_table(numeric, {{"so 3 + 4 = 7", "7", 1},
                        {"3 and 7", "3", 0},
                        {"#### 7", "7", 1},
                        {"first #### 3 then #### 7", "7", 1},
                        {"The answer is 7. That took 3 steps.", "7", 1},
                        {"ANSWER: 7 (of 12)", "7", 1},
                        {"the answer is 5. No, the answer is 7.", "7", 1},
                        {"My answer = 7, not 8", "7", 1},
                        {"Answers vary, but 7", "7", 1},
                        {"42 is my answer: done", "42", 1},  // nothing follows the marker
                        {"The answer is $\\frac{1}{2}$", "1", 0},
                        {"The answer is $\\frac{1}{2}$", "0.5", 1},
                        {"The answer is 2^10", "2", 0},
                        {"#### seven", "7", 0},
                        {"", "7", 0},
                        {"no idea", "7", 0},
                        {"Paid $1,200.00 #### 1,200", "$1200", 1},
                        {"It is -5", "5", 0},
                        {"7", "the total is #### 7", 1}});
}

TEST_CASE("numeric compares fractions, mixed numbers, exponents and percents by value") {
  check_table(numeric, {{"1/2", "0.5", 1},
                        {"0.75", "3/4", 1},
                        {"1 1/2", "1.5", 1},
                        {"1.2e3", "1200", 1},
                        {"50%", "0.5", 1},
                        {"50 percent", "50", 1},
                        {"0.5", "50%", 1},
                        {"50", "50%", 1},
                        {"5", "50%", 0},
                        {"50%", "50%", 1},
                        {"$5", "€5", 0},
                        {"5 dollars", "$5", 1}});
}

TEST_CASE("numeric converts units where the label has one, and never compares unlike ones") {
  check_table(numeric, {{"3.5 km", "3500 m", 1},
                        {"3500 m", "3.5 km", 1},
                        {"3.5", "3.5 km", 1},  // none given: the label's
                        {"3500", "3.5 km", 0},
                        {"3.5 kg", "3.5 km", 0},
                        {"3.5 m", "3.5 km", 0},
                        {"90 minutes", "1.5 hours", 1},
                        {"36 km/h", "10 m/s", 1},
                        {"2 m^2", "20000 cm^2", 1},
                        {"5 m", "5", 1},
                        {"5 cats", "5 dogs", 1}});  // words are no units
}

TEST_CASE("listing several answers is one guess for numeric") {
  check_table(numeric, {{"#### 1 2 3 4 5 6 7", "7", 0},
                        {"The answer is 1, 2, 3 or 7", "7", 0},
                        {"1 2 3 4 5 6 7 8", "7", 0},
                        {"#### 7 #### 8", "7", 0}});
}

TEST_CASE("a label without a number is no label for numeric") {
  CHECK_FALSE(numeric("7", "seven"));
  CHECK_FALSE(numeric("7", ""));
  CHECK_FALSE(numeric("7", "1/0"));
}

TEST_CASE("f1 counts common words after SQuAD's normalisation") {
  check_table(f1, {{"The cat sat", "cat sat!", 1},
                   {"a dog", "the cat", 0},
                   {"cat", "cat sat", 2.0 / 3},
                   {"", "", 1},
                   {"the", "", 1},  // an article is no word
                   {"", "cat", 0},
                   {"cat", "", 0},
                   {"cat cat cat cat", "cat", 0.4},  // repeating costs precision
                   {"CAT", "cat", 1}});
}

TEST_CASE("choice takes the one letter that the response states") {
  check_table(choice, {{"B", "B", 1},
                       {"(b)", "B", 1},
                       {"B.", "B", 1},
                       {"**B**", "B", 1},
                       {"Answer: B", "B", 1},
                       {"The answer is (C).", "C", 1},
                       {"The correct answer is: \\boxed{B}", "B", 1},
                       {"\\boxed{\\text{(D)}}", "D", 1},
                       {"\\boxed{b}", "B", 1},
                       {"I think it is B", "B", 1},
                       {"A good choice is B", "B", 1},
                       {"A is right", "A", 1},
                       {"reasons...\nB) Paris", "B", 1},
                       {"A. London is wrong.\nB. Paris fits.\nAnswer: B", "B", 1},
                       {"the answer is A. No wait.\nAnswer: C", "C", 1},
                       {"Final Answer:\n\nB", "B", 1},
                       {"B", "(b)", 1},
                       {"A", "B", 0},
                       {"", "B", 0},
                       {"The answer is B because A is wrong", "B", 1},
                       {"The answer is not A, it is B", "A", 0},
                       {"Answer: b", "B", 1},
                       {"Answer: option C, since B is out", "C", 1},
                       {"The answer is a dog", "A", 0},
                       {"Because", "B", 0},
                       {"K", "A", 0}});
}

TEST_CASE("naming several letters is no choice, and the last of two statements counts") {
  for (const std::string label : {"A", "B", "C", "D"}) {
    check_table(choice, {{"A B C D", label, 0},
                         {"A, B, C or D", label, 0},
                         {"(A)(B)(C)(D)", label, 0},
                         {"Answer: A or B or C or D", label, 0},
                         {"Answer: A/B/C/D", label, 0},
                         {"Answer: (A), (B), (C), (D)", label, 0},
                         {"Answer: D C B A", label, 0},
                         {"\\boxed{A, B, C, D}", label, 0},
                         {"\\boxed{ABCD}", label, 0}});
  }
  check_table(choice, {{"\\boxed{A} or rather \\boxed{B}", "A", 0}, {"\\boxed{A} or rather \\boxed{B}", "B", 1}});
}

TEST_CASE("a label that is no letter from A to J is no label for choice") {
  for (const std::string label : {"", "AB", "K", "7", "the first"}) CHECK_FALSE(choice("A", label));
}

TEST_CASE("a response of a megabyte takes linear time in every built-in") {
  const std::vector<std::string> hostile = {std::string(1000000, '9'),
                                            std::string(1000000, '('),
                                            repeated("1 ", 1000000),
                                            repeated("1,234", 1000000),
                                            repeated("1/2", 1000000),
                                            repeated("answer", 1000000),
                                            repeated("answer is ", 1000000),
                                            repeated("\\boxed{", 1000000),
                                            repeated("####", 1000000),
                                            repeated("A ", 1000000),
                                            "\\boxed{" + std::string(1000000, '{'),
                                            repeated("\\boxed{1}", 1000000),
                                            repeated("1.2.3.", 1000000),
                                            std::string(1000000, ' '),
                                            repeated("1 1/", 1000000),
                                            "\\boxed{" + repeated("(1,", 999999) + "}",
                                            repeated("-$", 1000000)};
  const std::vector<std::string> labels = {"7", "\\frac{1}{2}", "A"};
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& response : hostile) {
    for (const std::string& type : builtin_names()) {
      for (const std::string& label : labels) Builtins("").score(type, {"", response, label});
    }
  }
  // 17 responses x 7 rewards x 3 labels at some 10 ms each on a slow and busy machine, sanitizers included; a quadratic
  // one would take minutes by itself.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE(
    "random pieces of answers give a number from 0 to 1 or nothing, and compare equal to themselves where boxed") {
  const std::vector<std::string> pieces = {
      "\\boxed{", "\\frac", "\\sqrt", "\\text{", "{",       "}",  "(",  ")", "[", "]",  "\\{",  "\\}", "\\cup", "\\pi",
      "1",        "2",      "0",      ".",       ",",       "-",  "+",  "^", "/", "*",  "$",    "%",   " ",     "A",
      "B",        "x",      "km",     "####",    "answer ", "is", "1e", "=", "€", "\\", "\xff", "\n"};
  const Builtins builtins("");
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string texts[2];
    for (uint64_t side = 0; side < 2; ++side) {
      const uint64_t length = mix_key(i, side) % 12;
      for (uint64_t k = 0; k < length; ++k) texts[side] += pieces[mix_key(i, side, k) % pieces.size()];
    }
    CAPTURE(texts[0]);
    CAPTURE(texts[1]);
    for (const std::string& type : builtin_names()) {
      const Score score = builtins.score(type, {"", texts[0], texts[1]});
      if (score.value && (*score.value < 0.0 || *score.value > 1.0)) FAIL_CHECK(type);
      if (!score.value && (score.why == Missing::none || score.problem.empty())) FAIL_CHECK(type);
    }
    const std::string box = "\\boxed{" + texts[1] + "}";
    if (last_boxed(box) == texts[1] && boxed(box, box).value_or(1.0) != 1.0) FAIL_CHECK("not equal to itself");
  }
}
