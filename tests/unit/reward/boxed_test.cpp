#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reward/latex.hpp"
#include "reward/verifiers.hpp"

using namespace vime::reward;

namespace {

// The response is "\boxed{answer}".
bool same(const std::string& answer, const std::string& label) {
  const auto score = boxed("so \\boxed{" + answer + "}.", label);
  REQUIRE(score);
  return *score == 1.0;
}

}  // namespace

TEST_CASE("the last box with balanced braces is the answer") {
  CHECK(last_boxed("\\boxed{1} \\boxed{\\frac{1}{2}}") == "\\frac{1}{2}");
  CHECK(last_boxed("\\boxed{\\{1,2\\}}") == "\\{1,2\\}");
  CHECK(last_boxed("\\boxed{\\boxed{5}}") == "5");
  CHECK_FALSE(last_boxed("\\boxed{1} \\boxed{2"));
  CHECK_FALSE(last_boxed("boxed{1}"));
  CHECK(boxed("\\boxed{3} no, \\boxed{4}", "4") == 1.0);
  CHECK(boxed("\\boxed{4} no, \\boxed{3}", "4") == 0.0);
  CHECK(boxed("\\boxed{4} \\boxed{5", "4") == 0.0);  // cut off: no answer
  CHECK(boxed("4", "4") == 0.0);                     // not boxed
  CHECK(boxed("\\boxed{4}", "\\boxed{4}") == 1.0);
  CHECK_FALSE(boxed("\\boxed{4}", ""));
  CHECK_FALSE(boxed("\\boxed{4}", " $ "));
}

TEST_CASE("writing does not matter: spaces, commands, signs, zeros") {
  const std::vector<std::pair<std::string, std::string>> equal{{"\\dfrac{1}{2}", "\\frac12"},
                                                               {"\\tfrac 1 2", "\\frac{1}{2}"},
                                                               {" $42$ ", "42"},
                                                               {"42.", "42"},
                                                               {"42.0", "42"},
                                                               {"0.50", ".5"},
                                                               {"1{,}000", "1000"},
                                                               {"1,000,000", "1000000"},
                                                               {"90^\\circ", "90"},
                                                               {"90^{\\circ}", "90"},
                                                               {"90°", "90"},
                                                               {"50\\%", "50"},
                                                               {"\\$5", "5"},
                                                               {"\\left( 1, 2 \\right)", "(1,2)"},
                                                               {"\\text{yes}", "yes"},
                                                               {"5\\text{ cm}", "5"},
                                                               {"5\\,\\mathrm{cm}", "5 \\text{ cm}"},
                                                               {"x=5", "5"},
                                                               {"x \\in [1,2]", "[1,2]"},
                                                               {"2\\cdot x", "2\\times x"},
                                                               {"007", "7"},
                                                               {"−3", "-3"},
                                                               {"\\sqrt2", "\\sqrt{2}"}};
  for (const auto& [answer, label] : equal) {
    CAPTURE(answer);
    CAPTURE(label);
    CHECK(same(answer, label));
  }
}

TEST_CASE("numbers agree by value: fractions, decimals, roots and pi") {
  CHECK(same("0.5", "\\frac{1}{2}"));
  CHECK(same("\\frac{1}{2}", "0.5"));
  CHECK(same("1/2", "\\frac12"));
  CHECK(same("\\frac{2}{4}", "\\frac{1}{2}"));
  CHECK(same("-\\frac{1}{2}", "\\frac{-1}{2}"));
  CHECK(same("\\sqrt{8}", "2\\sqrt{2}"));
  CHECK(same("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}"));
  CHECK(same("\\sqrt[3]{8}", "2") == false);  // a whole label asks for a plain number
  CHECK(same("\\frac{\\pi}{2}", "0.5\\pi"));
  CHECK(same("1+\\sqrt{2}", "\\sqrt{2}+1"));
  CHECK(same("1024", "2^{10}"));
  CHECK(same("1\\frac{1}{2}", "1.5"));  // a mixed number, no product
  CHECK_FALSE(same("1\\frac{1}{2}", "0.5"));
  CHECK_FALSE(same("0.5", "1\\frac{1}{2}"));
  CHECK(same("3\\frac{\\pi}{2}", "1.5\\pi"));
  CHECK(same("\\frac{1}{2}\\text{ meters}", "0.5"));
  CHECK(same("5\\text{ cm}^2", "5"));
  CHECK(same("100", "100\\text{ dollars}"));
  CHECK_FALSE(same("0.333", "\\frac{1}{3}"));
  CHECK_FALSE(same("5", "6"));
  CHECK_FALSE(same("1234568", "1234567"));
  CHECK_FALSE(same("5 \\text{ m}", "5\\text{ cm}"));
}

TEST_CASE("the task handed back is no answer") {
  CHECK_FALSE(same("12*13", "156"));
  CHECK_FALSE(same("12\\times 13", "156"));
  CHECK_FALSE(same("\\frac{24}{2}", "12"));
  CHECK_FALSE(same("24/2", "12"));
  CHECK_FALSE(same("2^{10}", "1024"));
  CHECK_FALSE(same("\\sqrt{144}", "12"));
  CHECK_FALSE(same("100-1", "99"));
  CHECK_FALSE(same("0.25+0.25", "0.5"));
  CHECK_FALSE(same("(3)(4)", "12"));
  CHECK_FALSE(same("1,2,3,4", "4"));
  CHECK_FALSE(same("3 \\text{ or } 4", "4"));
  CHECK_FALSE(same("3 \\text{ or } 4", "34"));
}

TEST_CASE("tuples and intervals compare in order with their brackets, sets and bare lists in any order") {
  CHECK(same("(1, 0.5)", "(1,\\frac12)"));
  CHECK_FALSE(same("(2,1)", "(1,2)"));
  CHECK_FALSE(same("[1,2)", "(1,2)"));
  CHECK_FALSE(same("(1,2,3)", "(1,2)"));
  CHECK(same("\\{3,1,2\\}", "\\{1,2,3\\}"));
  CHECK_FALSE(same("\\{1,1,2\\}", "\\{1,2,2\\}"));
  CHECK(same("2, -1", "-1,2"));
  CHECK(same("(-\\infty, 0.5] \\cup [3, \\infty)", "(-\\infty,\\frac{1}{2}]\\cup[3,\\infty)"));
  CHECK(same("((1,2),(3,4))", "((1,2),(3,4.0))"));
  CHECK_FALSE(same("()", "(1)"));
}

TEST_CASE("values that are not finite, and texts that are too deep, are no numbers") {
  CHECK_FALSE(latex_value("1/0"));
  CHECK_FALSE(latex_value("\\frac{1}{0}"));
  CHECK_FALSE(latex_value("9^{9^{9^{9}}}"));
  CHECK_FALSE(latex_value("\\sqrt{-1}"));
  CHECK_FALSE(latex_value(""));
  CHECK_FALSE(latex_value("x"));
  CHECK_FALSE(
      latex_value("1."
                  "1.1"));
  CHECK_FALSE(latex_value(std::string(2000, '(')));
  CHECK_FALSE(same(std::string(2000, '(') + "1" + std::string(2000, ')'), "1"));
  CHECK_FALSE(same(std::string(4000, '9'), std::string(3999, '9') + "8"));
  CHECK(same(std::string(4000, '9'), std::string(4000, '9')));
  CHECK(latex_value("2\\sqrt{2}") == doctest::Approx(2 * std::sqrt(2.0)));
}
