#include "reward/number.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

namespace vime::reward {
namespace {

constexpr size_t kLongestNumber = 400;  // characters; what is longer is passed over

bool is_digit(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

bool is_letter(std::string_view text, size_t at) {
  return at < text.size() && (std::isalpha(static_cast<unsigned char>(text[at])) || text[at] == '_');
}

size_t skip_digits(std::string_view text, size_t at) {
  while (is_digit(text, at)) ++at;
  return at;
}

bool starts(std::string_view text, size_t at, std::string_view what) {
  return text.substr(std::min(at, text.size()), what.size()) == what;
}

bool three_digits_at(std::string_view text, size_t at) {
  return is_digit(text, at) && is_digit(text, at + 1) && is_digit(text, at + 2) && !is_digit(text, at + 3);
}

// The end of "12", "1,234,567", "12.5", ".5", "1e-5" at `at`. Fills in the plain text that stands for it.
size_t read_figures(std::string_view text, size_t at, std::string& plain, bool& whole) {
  size_t end = skip_digits(text, at);
  plain = text.substr(at, end - at);
  whole = true;
  if (end > at && end - at <= 3) {
    while (starts(text, end, ",") && three_digits_at(text, end + 1) && plain.size() < kLongestNumber) {
      plain += text.substr(end + 1, 3);
      end += 4;
    }
  }
  if (starts(text, end, ".") && is_digit(text, end + 1)) {
    const size_t stop = skip_digits(text, end + 1);
    plain += text.substr(end, stop - end);
    end = stop;
    whole = false;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t power = end + 1;
    if (starts(text, power, "-") || starts(text, power, "+")) ++power;
    const size_t stop = skip_digits(text, power);
    if (stop > power && !is_letter(text, stop)) {
      plain += "e";
      plain += text.substr(text[end + 1] == '+' ? end + 2 : end + 1, stop - (text[end + 1] == '+' ? end + 2 : end + 1));
      end = stop;
      whole = false;
    }
  }
  return end;
}

std::optional<double> to_double(const std::string& plain) {
  if (plain.empty() || plain.size() > kLongestNumber) return std::nullopt;
  const std::string text = plain[0] == '.' ? "0" + plain : plain;
  double value = 0.0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "/4" at `at`, as a whole number above zero.
std::optional<double> read_denominator(std::string_view text, size_t& at) {
  if (!starts(text, at, "/") || !is_digit(text, at + 1)) return std::nullopt;
  const size_t end = skip_digits(text, at + 1);
  const std::optional<double> value = to_double(std::string(text.substr(at + 1, end - at - 1)));
  at = end;
  return value ? value : 0.0;  // out of range counts as zero: no number
}

// Behind "3": " x 10^5", "\times10^{5}". Sets `at` behind it.
std::optional<double> read_power_of_ten(std::string_view text, size_t& at) {
  size_t end = starts(text, at, " ") ? at + 1 : at;
  const auto take = [&](std::string_view what) {
    if (!starts(text, end, what)) return false;
    end += what.size();
    return true;
  };
  if (!take("x") && !take("×") && !take("*") && !take("\\times") && !take("\\cdot")) return std::nullopt;
  take(" ");
  if (!take("10^")) return std::nullopt;
  const bool braced = take("{");
  const bool negative = take("-") || take("−");
  const size_t stop = skip_digits(text, end);
  const auto power = to_double(std::string(text.substr(end, stop - end)));
  end = stop;
  if (!power || (braced && !take("}"))) return std::nullopt;
  at = end;
  return std::pow(10.0, negative ? -*power : *power);
}

// "\frac{3}{4}", \dfrac and \tfrac alike, at `at`; digits only. Not finite over zero.
std::optional<Number> read_latex_fraction(std::string_view text, size_t at) {
  size_t end = at + 1;
  if (starts(text, end, "d") || starts(text, end, "t")) ++end;
  if (!starts(text, end, "frac{")) return std::nullopt;
  end += 5;
  const size_t top_end = skip_digits(text, end);
  const auto top = to_double(std::string(text.substr(end, top_end - end)));
  if (!top || !starts(text, top_end, "}{")) return std::nullopt;
  const size_t bottom_end = skip_digits(text, top_end + 2);
  const auto bottom = to_double(std::string(text.substr(top_end + 2, bottom_end - top_end - 2)));
  if (!bottom || !starts(text, bottom_end, "}")) return std::nullopt;
  Number number;
  number.end = bottom_end + 1;
  number.value = *top / *bottom;
  return number;
}

// Sign and currency sign, in either order, that end at `at`; sets where the number begins.
bool read_sign(std::string_view text, size_t at, Number& number) {
  constexpr std::string_view kCurrencies[] = {"\\$", "$", "€", "£", "¥"};
  bool negative = false;
  size_t begin = at;
  const auto ends_with = [&](std::string_view what) {
    return begin >= what.size() && text.substr(begin - what.size(), what.size()) == what;
  };
  const auto take_currency = [&] {
    for (const std::string_view sign : kCurrencies) {
      if (!number.currency.empty() || !ends_with(sign)) continue;
      number.currency = sign == "\\$" ? "$" : std::string(sign);
      begin -= sign.size();
    }
  };
  take_currency();
  for (const std::string_view sign : {"-", "−", "+"}) {
    if (!ends_with(sign)) continue;
    const size_t before = begin - sign.size();
    const unsigned char left = before == 0 ? ' ' : static_cast<unsigned char>(text[before - 1]);
    if (std::isalnum(left) || left == ')' || left == '-') break;
    negative = sign != "+";
    begin = before;
    if (number.currency.empty()) take_currency();
    break;
  }
  number.begin = begin;
  return negative;
}

void read_suffix(std::string_view text, Number& number) {
  const size_t after = starts(text, number.end, " ") ? number.end + 1 : number.end;
  for (const std::string_view sign : {"\\%", "%", "percent"}) {
    if (!starts(text, after, sign)) continue;
    number.percent = true;
    number.end = after + sign.size();
    return;
  }
  const auto found = unit_at(text.substr(after));
  if (!found || is_letter(text, after + found->length)) return;
  number.unit = found->unit;
  number.end = after + found->length;
}

// The number whose figures begin at `at`. When there is none, `next` says where to look on.
std::optional<Number> number_at(std::string_view text, size_t at, size_t& next) {
  Number number;
  std::string plain;
  next = number.end = read_figures(text, at, plain, number.whole);
  if (starts(text, next, "^")) {  // a power: neither its base nor its exponent is meant
    next = skip_digits(text, starts(text, next + 1, "{") ? next + 2 : next + 1);
    return std::nullopt;
  }
  const bool is_versions = starts(text, next, ".") && is_digit(text, next + 1);
  while (starts(text, next, ".") && is_digit(text, next + 1)) next = skip_digits(text, next + 1);
  const std::optional<double> figures = to_double(plain);
  if (is_versions || !figures) return std::nullopt;
  number.value = *figures;
  size_t end = number.end;
  if (const std::optional<double> below = read_denominator(text, end)) {
    next = end;
    if (*below == 0.0) return std::nullopt;
    number.value /= *below;
    number.whole = false;
    number.end = end;
  } else if (const std::optional<double> power = read_power_of_ten(text, end)) {
    if (!std::isfinite(number.value * *power)) return std::nullopt;
    number.value *= *power;
    number.whole = false;
    number.end = next = end;
  } else if (number.whole && starts(text, number.end, " ") && is_digit(text, number.end + 1)) {
    size_t top_end = skip_digits(text, number.end + 1);
    const auto top = to_double(std::string(text.substr(number.end + 1, top_end - number.end - 1)));
    const std::optional<double> bottom = read_denominator(text, top_end);
    if (top && bottom && *bottom > *top) {
      number.value += *top / *bottom;
      number.whole = false;
      number.end = next = top_end;
    }
  }
  const bool negative = read_sign(text, at, number);
  if (negative) number.value = -number.value;
  if (number.whole) {
    const size_t leading = std::min(plain.find_first_not_of('0'), plain.size() - 1);
    number.digits = (negative && number.value != 0.0 ? "-" : "") + plain.substr(leading);
  }
  read_suffix(text, number);
  return number;
}

}  // namespace

std::optional<Number> next_number(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size();) {
    if (text[at] == '\\') {
      if (std::optional<Number> number = read_latex_fraction(text, at)) {
        if (!std::isfinite(number->value)) {
          at = number->end;
          continue;
        }
        const bool negative = read_sign(text, at, *number);
        if (negative) number->value = -number->value;
        read_suffix(text, *number);
        return number;
      }
    }
    const bool is_point = text[at] == '.' && is_digit(text, at + 1);
    if (!is_digit(text, at) && !is_point) {
      ++at;
      continue;
    }
    size_t next = 0;
    const bool touches_letter = at > 0 && is_letter(text, at - 1);
    std::optional<Number> number = number_at(text, at, next);
    if (number && !touches_letter) return number;
    at = std::max(next, at + 1);
  }
  return std::nullopt;
}

std::optional<Number> last_number(std::string_view text) {
  std::optional<Number> last;
  for (size_t at = 0;;) {
    std::optional<Number> number = next_number(text, at);
    if (!number) return last;
    at = number->end;
    last = std::move(number);
  }
}

bool close(double a, double b) {
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= kRelativeTolerance * std::abs(b);
}

bool same_value(const Number& a, const Number& b) {
  if (a.whole && b.whole) return a.digits == b.digits;
  return close(a.value, b.value);
}

}  // namespace vime::reward
