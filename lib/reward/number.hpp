// Numbers as people and models write them in running text. Pure functions, linear in the text's length.
//
// A number is: an optional sign (a minus between two figures, as in "3-4", is none) and currency sign; digits, with
// thousands separators in groups of three if any, or a decimal part, or both; an optional exponent "e-5". Directly
// after it may stand a denominator ("3/4"), a power of ten ("3 x 10^5", "3\times10^{5}"), after a whole number and one
// space a proper fraction ("1 1/2"), and then a percent sign or a unit. \frac{3}{4} of whole numbers is a number too.
// Digits that touch a letter ("H2O"), figures with two points ("1.2.3"), other powers ("2^10") and a denominator of
// zero are no numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vime::reward {

struct Unit {
  std::string dimension;  // "m", "m2", "m/s"; "" = none
  double factor = 1.0;    // to the dimension's base unit
};
// The unit at the start of the text and how many bytes it takes; nothing when there is none. Known are m, g, s, L, W,
// J, N, Pa, Hz, V, A, K, mol, B, bit, eV, Wh, cal with SI prefixes, their names in words, minutes to days, feet, inches
// (as a word), miles, pounds; a power (^2, ², ^3, ³); and one division ("km/h").
struct UnitFound {
  Unit unit;
  size_t length = 0;
};
std::optional<UnitFound> unit_at(std::string_view text);

struct Number {
  double value = 0.0;    // as written: 50 for "50%", 3.5 for "3.5 km"
  bool whole = false;    // written as an integer
  std::string digits;    // of a whole number: sign and digits without leading zeros
  bool percent = false;  // a percent sign or the word follows
  std::string currency;  // "$", "€", ... or ""
  Unit unit;
  size_t begin = 0, end = 0;  // where it stands, sign, percent sign and unit included
};

// The first number that begins at or after `from`; nothing when there is none.
std::optional<Number> next_number(std::string_view text, size_t from);
std::optional<Number> last_number(std::string_view text);

// Whether the bare values agree: whole numbers digit by digit, others within a relative 1e-6.
bool same_value(const Number& a, const Number& b);
inline constexpr double kRelativeTolerance = 1e-6;
bool close(double a, double b);

}  // namespace vime::reward
