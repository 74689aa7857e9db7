#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numbers>

#include "reward/latex.hpp"

namespace vime::reward {
namespace {

// Recursive descent over the normal form. `failed_` is sticky; depth is bounded, for the text is hostile.
class Evaluation {
 public:
  explicit Evaluation(std::string_view text) : text_(text) {}

  std::optional<double> value() {
    const double result = sum();
    if (failed_ || at_ != text_.size() || !std::isfinite(result)) return std::nullopt;
    return result;
  }

 private:
  static constexpr int kDeepest = 64;

  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  double fail() {
    failed_ = true;
    at_ = text_.size();
    return 0.0;
  }

  double sum() {
    if (++depth_ > kDeepest) return fail();
    double total = take("-") ? -product() : (take("+"), product());
    while (!failed_) {
      if (take("+")) {
        total += product();
      } else if (take("-")) {
        total -= product();
      } else {
        break;
      }
    }
    --depth_;
    return total;
  }

  // A factor follows without a sign only where it cannot be read as part of a figure: "2\sqrt{3}", "2(3)", "2\pi".
  double product() {
    double total = power();
    while (!failed_) {
      if (take("*")) {
        total *= power();
      } else if (take("/")) {
        const double below = power();
        if (below == 0.0) return fail();
        total /= below;
      } else if (peek() == '(' || peek() == '\\') {
        total *= power();
      } else {
        break;
      }
    }
    return total;
  }

  double power() {
    const double base = atom();
    if (!take("^")) return base;
    if (take("{")) {
      const double exponent = sum();
      return take("}") ? std::pow(base, exponent) : fail();
    }
    if (peek() < '0' || peek() > '9') return fail();
    return std::pow(base, static_cast<double>(text_[at_++] - '0'));
  }

  double braced() {
    if (!take("{")) return fail();
    const double value = sum();
    return take("}") ? value : fail();
  }

  double atom() {
    if (failed_) return 0.0;
    if (take("(")) {
      const double value = sum();
      return take(")") ? value : fail();
    }
    if (take("\\frac")) {
      const double above = braced();
      const double below = braced();
      return below == 0.0 ? fail() : above / below;
    }
    if (take("\\sqrt")) return root();
    if (take("\\pi")) return std::isalpha(static_cast<unsigned char>(peek())) ? fail() : std::numbers::pi;
    const double value = figure();
    return value == std::floor(value) ? value + mixed_fraction() : value;
  }

  // "1\frac{1}{2}" is one and a half, no product. Otherwise nothing is taken.
  double mixed_fraction() {
    const size_t start = at_;
    double above = 0.0, below = 0.0;
    if (take("\\frac{") && whole(above) && take("}{") && whole(below) && take("}") && below > above)
      return above / below;
    at_ = start;
    return 0.0;
  }
  bool whole(double& value) {
    const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    const auto result = std::from_chars(text_.data() + at_, text_.data() + end, value, std::chars_format::fixed);
    const bool found = result.ec == std::errc() && end > at_;
    at_ = end;
    return found;
  }

  double root() {
    double degree = 2.0;
    if (take("[")) {
      degree = figure();
      if (!take("]") || degree < 1.0) return fail();
    }
    const double inner = braced();
    if (inner < 0.0) return fail();
    return degree == 2.0 ? std::sqrt(inner) : std::pow(inner, 1.0 / degree);
  }

  double figure() {
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    double value = 0.0;
    if (peek() < '0' || peek() > '9') return fail();
    const auto result = std::from_chars(begin, end, value, std::chars_format::fixed);
    if (result.ec != std::errc()) return fail();
    at_ += static_cast<size_t>(result.ptr - begin);
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

}  // namespace

std::optional<double> latex_value(std::string_view normal) {
  return Evaluation(normal).value();
}

}  // namespace vime::reward
