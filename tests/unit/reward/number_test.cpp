#include "reward/number.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

using namespace vime::reward;

namespace {

struct Case {
  std::string text;
  double value;
};

double last_value(const std::string& text) {
  const auto number = last_number(text);
  return number ? number->value : std::nan("");
}

}  // namespace

TEST_CASE("numbers are read as people write them") {
  const std::vector<Case> cases{{"42", 42},
                                {"it is 42.", 42},
                                {"-7", -7},
                                {"+7", 7},
                                {"−7", -7},  // U+2212
                                {"x=-4", -4},
                                {"3-4", 4},  // a range, no sign
                                {"(5)-3", 3},
                                {"1,234", 1234},
                                {"1,234,567.5", 1234567.5},
                                {"12,34", 34},  // no groups of three: a list
                                {"1,2,3", 3},
                                {"1234,567", 567},  // neither
                                {".5", 0.5},
                                {"2.50", 2.5},
                                {"1e3", 1000},
                                {"1.5E-3", 0.0015},
                                {"3/4", 0.75},
                                {"-1/2", -0.5},
                                {"1 1/2", 1.5},
                                {"-2 1/4", -2.25},
                                {"2 3/2", 1.5},  // no proper fraction: two numbers
                                {"$18", 18},
                                {"-$18", -18},
                                {"$-18", -18},
                                {"\\$18", 18},
                                {"€1,000", 1000},
                                {"50%", 50},
                                {"7 apples", 7},
                                {"**12**", 12},
                                {"3 x 10^5", 3e5},
                                {"1.5\\times10^{-2}", 0.015},
                                {"6×10^3", 6000},
                                {"\\frac{3}{4}", 0.75},
                                {"$-\\dfrac{1}{2}$", -0.5},
                                {"10.", 10}};
  for (const Case& c : cases) {
    CAPTURE(c.text);
    CHECK(last_value(c.text) == doctest::Approx(c.value));
  }
}

TEST_CASE("what is no number is passed over") {
  for (const std::string text : {"", "none", "H2O", "x_3", "version 1.2.3", "5/0", "3/0 of it", "1e999", "2^10",
                                 "10^{3}", "1x10^999", "\\frac{1}{0}", "-", "$", "."}) {
    CAPTURE(text);
    CHECK_FALSE(last_number(text));
  }
  CHECK(last_value("7 of H2O") == 7);
  CHECK_FALSE(last_number(std::string(1000, '9')));
}

TEST_CASE("whole numbers agree digit by digit, others within a relative 1e-6") {
  const auto same = [](const std::string& a, const std::string& b) {
    return same_value(*last_number(a), *last_number(b));
  };
  CHECK(same("007", "7"));
  CHECK(same("1,000", "1000"));
  CHECK(same("-0", "0"));
  CHECK_FALSE(same("1234568", "1234567"));  // a relative 8e-7
  CHECK(same("12345678901234567890123", "12345678901234567890123"));
  CHECK_FALSE(same("12345678901234567890124", "12345678901234567890123"));  // the same double
  CHECK(same("42.0", "42"));
  CHECK(same("0.33333333", "1/3"));
  CHECK_FALSE(same("0.333", "1/3"));
  CHECK_FALSE(same("1e-9", "0"));
}

TEST_CASE("units are known with SI prefixes, in words, as powers and as quotients") {
  const auto factor = [](const std::string& text) {
    const auto found = unit_at(text);
    return found && found->length == text.size() ? found->unit.factor : -1.0;
  };
  CHECK(factor("m") == 1);
  CHECK(factor("km") == 1000);
  CHECK(factor("µs") == 1e-6);
  CHECK(factor("kilometers") == 1000);
  CHECK(factor("seconds") == 1);
  CHECK(factor("min") == 60);
  CHECK(factor("mins") == 60);
  CHECK(factor("hours") == 3600);
  CHECK(factor("cm^2") == doctest::Approx(1e-4));
  CHECK(factor("m³") == 1);
  CHECK(factor("km/h") == doctest::Approx(1000.0 / 3600));
  CHECK(factor("kWh") == 3.6e6);
  CHECK(factor("apples") == -1);
  CHECK(factor("kapples") == -1);
  CHECK(factor("kilom") == -1);  // prefix in words, unit in letters
  CHECK(unit_at("m2")->length == 1);
  CHECK(unit_at("km/h")->unit.dimension == "m/s");
}
