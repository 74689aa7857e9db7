// A short mathematical answer in LaTeX, brought to one form and compared. Pure functions. No algebra: "x+1" and "1+x"
// differ. Contents longer than 4096 bytes are compared as they are.
//
// The one form: no spaces, dollar signs, \left \right and size commands, spacing commands, degree and percent signs;
// \dfrac, \tfrac, \cfrac and \frac12 as \frac{1}{2}; \sqrt2 as \sqrt{2}; \cdot and \times as *; the content of \text,
// \mathrm, \mathbf, \textbf, \mbox, \operatorname; decimals without zeros at the end; thousands separators taken out;
// no full stop at the end; no "x=" or "x\in" before it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vime::reward {

std::string normal_latex(std::string_view text);

// The value of a closed expression in normal form: decimals, \frac, /, \sqrt and \sqrt[n], \pi, parentheses, + - * ^
// and a product without a sign. Nothing for all else, for a division by zero, and for what is not finite.
std::optional<double> latex_value(std::string_view normal);

// Both in normal form; the rules are those of boxed() in verifiers.hpp.
bool same_latex(std::string_view answer, std::string_view label);

}  // namespace vime::reward
