#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_filter_table.hpp"
#include "text/jinja_methods.hpp"
#include "text/jinja_operators.hpp"
#include "text/python_text.hpp"

namespace vime::text::jinja {
namespace {

Value json_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = given.flag(0, false);
  style.sort_keys = given.flag(3, false);
  if (given.is_given(1) && !given.given(1)->is_none()) {
    if (given.given(1)->is_string()) {
      style.indent = given.text(1);
    } else {
      const int64_t width = given.integer(1, 0);
      if (width > 100) fail("tojson: an indent of more than 100");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (given.is_given(2) && !given.given(2)->is_none()) {
    const Value& pair = *given.given(2);
    const bool right = pair.is_list() && pair.list().items.size() == 2 && pair.list().items[0].is_string() &&
                       pair.list().items[1].is_string();
    if (!right) fail("tojson: separators must be two strings");
    style.item_separator = pair.list().items[0].string();
    style.key_separator = pair.list().items[1].string();
  }
  return to_json(call.value, style, call.budget);
}

Value default_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"default_value", "boolean"});
  const bool absent = call.value.is_undefined() || (given.flag(1, false) && !call.value.truthy());
  if (!absent) return call.value;
  return given.is_given(0) ? *given.given(0) : Value("");
}

Value trim_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"chars"});
  return strip(call.text(), given.text_or_none(0), Side::both);
}

Value case_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  const std::string text = call.text();
  if (call.name == "upper") return upper(text);
  if (call.name == "lower") return lower(text);
  if (call.name == "title") return title_filter(text);
  return capitalized(text);
}

Value replace_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"old", "new", "count"});
  const std::string from = to_text(given.required(0), call.budget);
  const std::string to = to_text(given.required(1), call.budget);
  const std::string text = call.text();
  const size_t most = from.empty() ? text.size() + 1 : text.size() / from.size();
  if (!to.empty() && most > kMaxText / to.size()) fail("a string longer than 64 MiB");
  const bool all = !given.is_given(2) || given.given(2)->is_none();
  return replaced(text, from, to, all ? -1 : given.integer(2, -1));
}

// Every line but the first (or that one too) gets the indentation; empty lines only if asked for.
Value indent_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"width", "first", "blank"});
  if (call.value.is_undefined()) fail(call.value.why());
  if (!call.value.is_string()) fail("indent: expected a string, not " + type_name(call.value));
  std::string indentation = "    ";
  if (given.is_given(0)) {
    if (!given.given(0)->is_string() && given.integer(0, 4) > 1000) fail("indent: a width of more than 1000");
    indentation = given.given(0)->is_string()
                      ? given.text(0)
                      : std::string(static_cast<size_t>(std::max<int64_t>(given.integer(0, 4), 0)), ' ');
  }
  std::string result;
  bool first = true;
  for (const std::string& line : split_lines(call.text() + "\n", false)) {
    if (!first) result += '\n';
    const bool indented = first ? given.flag(1, false) : (given.flag(2, false) || !line.empty());
    if (indented) result += indentation;
    first = false;
    result += line;
    call.budget.charge(indentation.size() / 8);
    if (result.size() > kMaxText) fail("a string longer than 64 MiB");
  }
  return result;
}

Value escape_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  std::string result;
  for (char c : call.text()) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '\'') {
      result += "&#39;";
    } else if (c == '"') {
      result += "&#34;";
    } else {
      result += c;
    }
  }
  return result;
}

Value string_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  return call.text();
}

Value center_filter(const FilterCall& call) {
  Arguments arguments;
  arguments.positional = {Parameters(call.arguments, call.name, {"width"}).integer(0, 80)};
  return method_of(call.text(), "center")->object().call(arguments);
}

Value wordcount_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  const std::string text = call.text();
  int64_t count = 0;
  bool inside = false;
  for (char c : text) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
    if (word && !inside) ++count;
    inside = word;
  }
  return count;
}

// The number that text begins and ends with, white space aside.
template <typename Number>
bool read_number(const std::string& written, Number& number) {
  std::string text = strip(written, std::nullopt, Side::both);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.erase(0, 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Value int_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"default", "base"});
  if (given.integer(1, 10) != 10) fail("int: only base 10 is supported");
  const Value absent = given.is_given(0) ? *given.given(0) : Value(0);
  if (call.value.is_undefined()) fail(call.value.why());
  if (call.value.is_integral()) return call.value.integer();
  double real = 0;
  int64_t integer = 0;
  if (call.value.is_string() && read_number(call.value.string(), integer)) return integer;
  if (call.value.is_float()) {
    real = call.value.real();
  } else if (!call.value.is_string() || !read_number(call.value.string(), real)) {
    return absent;
  }
  if (!std::isfinite(real) || std::fabs(real) > 9e18) return absent;
  return static_cast<int64_t>(real);
}

Value float_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"default"});
  if (call.value.is_undefined()) fail(call.value.why());
  if (call.value.is_number()) return call.value.real();
  double real = 0;
  if (call.value.is_string() && read_number(call.value.string(), real)) return real;
  return given.is_given(0) ? *given.given(0) : Value(0.0);
}

Value abs_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  if (call.value.is_undefined()) fail(call.value.why());
  if (!call.value.is_number()) fail("bad operand type for abs(): '" + type_name(call.value) + "'");
  if (call.value.is_float()) return std::fabs(call.value.real());
  return call.value.integer() < 0 ? unary_operation("-", call.value.integer()) : Value(call.value.integer());
}

Value round_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"precision", "method"});
  if (call.value.is_undefined()) fail(call.value.why());
  if (!call.value.is_number()) fail("round: expected a number, not " + type_name(call.value));
  const int64_t precision = given.integer(0, 0);
  if (precision < -15 || precision > 15) fail("round: a precision beyond 15 digits");
  const std::string method = given.is_given(1) ? given.text(1) : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(call.value.real() * scale) / scale;
  if (method == "floor") return std::floor(call.value.real() * scale) / scale;
  if (method != "common") fail("round: method must be common, ceil or floor");
  if (call.value.is_integral() && precision >= 0) return call.value.integer();
  if (precision < 0) return std::nearbyint(call.value.real() * scale) / scale;
  // Python rounds the exact decimal value; printf does the same.
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(precision), call.value.real());
  return std::strtod(digits, nullptr);
}

Value attr_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"name"});
  const std::string& name = given.text(0);
  if (call.value.is_undefined()) fail(call.value.why());
  // Only true attributes: keys of dicts are none.
  if (call.value.is_object()) return attribute(call.value, name);
  if (auto method = method_of(call.value, name)) return *method;
  return Value::undefined("'" + type_name(call.value) + " object' has no attribute '" + name + "'");
}

Value safe_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  return call.text();
}

}  // namespace

FilterTable text_filters() {
  return {
      {"tojson", json_filter},   {"default", default_filter}, {"d", default_filter},
      {"trim", trim_filter},     {"upper", case_filter},      {"lower", case_filter},
      {"title", case_filter},    {"capitalize", case_filter}, {"replace", replace_filter},
      {"indent", indent_filter}, {"escape", escape_filter},   {"e", escape_filter},
      {"string", string_filter}, {"center", center_filter},   {"wordcount", wordcount_filter},
      {"int", int_filter},       {"float", float_filter},     {"abs", abs_filter},
      {"round", round_filter},   {"attr", attr_filter},       {"safe", safe_filter},
  };
}

}  // namespace vime::text::jinja
