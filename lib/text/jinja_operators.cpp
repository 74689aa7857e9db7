#include "text/jinja_operators.hpp"

#include <algorithm>
#include <cmath>

#include "text/jinja_methods.hpp"
#include "text/jinja_text.hpp"
#include "text/python_text.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {
namespace {

[[noreturn]] void wrong_operands(const std::string& sign, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) fail(value->why());
  }
  fail("unsupported operand types for " + sign + ": '" + type_name(left) + "' and '" + type_name(right) + "'");
}

void check_overflow(const std::string& sign, bool overflow) {
  if (overflow) fail("the result of " + sign + " is too large");
}

// Python rounds quotients down.
int64_t floor_divide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (i > 64 && result == 1 && base == 1) return 1;
    if (i > 64 && base == 0) return 0;
    if (i > 64 && base == -1) return exponent % 2 == 0 ? 1 : -1;
    if (__builtin_mul_overflow(result, base, &result)) fail("the result of ** is too large");
  }
  return result;
}

Value integer_operation(const std::string& sign, int64_t left, int64_t right) {
  int64_t result = 0;
  if (sign == "+" || sign == "-" || sign == "*") {
    check_overflow(sign, sign == "+"   ? __builtin_add_overflow(left, right, &result)
                         : sign == "-" ? __builtin_sub_overflow(left, right, &result)
                                       : __builtin_mul_overflow(left, right, &result));
    return result;
  }
  if (sign == "**") return integer_power(left, right);
  if (right == 0) fail("division by zero");
  if (sign == "/") return static_cast<double>(left) / static_cast<double>(right);
  if (right == -1) return sign == "%" ? Value(0) : integer_operation("-", 0, left);
  const int64_t quotient = floor_divide(left, right);
  return sign == "//" ? quotient : left - quotient * right;
}

Value real_operation(const std::string& sign, double left, double right) {
  if (sign == "+") return left + right;
  if (sign == "-") return left - right;
  if (sign == "*") return left * right;
  if (sign == "**") return std::pow(left, right);
  if (right == 0) fail("division by zero");
  if (sign == "/") return left / right;
  const double quotient = std::floor(left / right);
  return sign == "//" ? quotient : left - quotient * right;
}

Value repeated(const Value& value, int64_t count, Budget& budget) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (value.is_string()) {
    const std::string& text = value.string();
    if (!text.empty() && times > kMaxText / text.size()) fail("a string longer than 64 MiB");
    budget.charge(text.size() * times);
    std::string result;
    for (uint64_t i = 0; i < times && !text.empty(); ++i) result += text;
    return result;
  }
  const List& list = value.list();
  if (!list.items.empty() && times > kMaxItems / list.items.size()) fail("a list of more than a million items");
  budget.charge(list.items.size() * times * 4);
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && !list.items.empty(); ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return Value::list(std::move(items), list.kind);
}

bool is_sequence(const Value& value) {
  return value.is_string() || (value.is_list() && value.list().kind <= List::Kind::tuple);
}

// The place that an index of Python's stands for, or -1.
int64_t place_of(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  return index >= 0 && index < count ? index : -1;
}

}  // namespace

Value concatenated(const Value& left, const Value& right, Budget& budget) {
  std::string text = to_text(left, budget);
  const std::string more = to_text(right, budget);
  if (text.size() + more.size() > kMaxText) fail("a string longer than 64 MiB");
  budget.charge((text.size() + more.size()) / 8);
  return text + more;
}

Value binary_operation(const std::string& sign, const Value& left, const Value& right, Budget& budget) {
  if (sign == "~") return concatenated(left, right, budget);
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return real_operation(sign, left.real(), right.real());
    return integer_operation(sign, left.integer(), right.integer());
  }
  if (sign == "+" && left.is_string() && right.is_string()) return concatenated(left, right, budget);
  if (sign == "+" && is_sequence(left) && is_sequence(right) && !left.is_string() && !right.is_string() &&
      left.list().kind == right.list().kind) {
    std::vector<Value> items = left.list().items;
    items.insert(items.end(), right.list().items.begin(), right.list().items.end());
    if (items.size() > kMaxItems) fail("a list of more than a million items");
    budget.charge(items.size() * 4);
    return Value::list(std::move(items), left.list().kind);
  }
  if (sign == "*" && is_sequence(left) && right.is_integral()) return repeated(left, right.integer(), budget);
  if (sign == "*" && left.is_integral() && is_sequence(right)) return repeated(right, left.integer(), budget);
  if (sign == "%" && left.is_string())
    fail("\"%\" as a format of strings is not supported", "put strings together with ~");
  wrong_operands(sign, left, right);
}

Value unary_operation(const std::string& sign, const Value& value) {
  if (sign == "not") return !value.truthy();
  if (value.is_undefined()) fail(value.why());
  if (!value.is_number()) fail("bad operand type for unary " + sign + ": '" + type_name(value) + "'");
  if (value.is_float()) return sign == "-" ? -value.real() : value.real();
  if (sign == "+") return value.integer();
  return integer_operation("-", 0, value.integer());
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) {
    if (item.is_undefined()) fail(item.why());
    if (!item.is_string()) fail("'in <string>' requires string as left operand, not " + type_name(item));
    budget.charge(container.string().size() / 8);
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    budget.charge(container.dict().items.size());
    return container.dict().find(item) != nullptr;
  }
  if (!container.is_list()) {
    if (container.is_undefined()) return false;
    fail("argument of type '" + type_name(container) + "' is not iterable");
  }
  const auto& items = container.list().items;
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equals(other, item, budget); });
}

bool compare(const std::string& sign, const Value& left, const Value& right, Budget& budget) {
  if (sign == "==") return equals(left, right, budget);
  if (sign == "!=") return !equals(left, right, budget);
  if (sign == "in") return contains(right, left, budget);
  if (sign == "not in") return !contains(right, left, budget);
  const bool unordered = left.is_number() && right.is_number() && (std::isnan(left.real()) || std::isnan(right.real()));
  if (unordered) return false;
  const int found = order(left, right, budget);
  if (sign == "<") return found < 0;
  if (sign == "<=") return found <= 0;
  if (sign == ">") return found > 0;
  return found >= 0;
}

Value attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) fail(value.why());
  if (name.rfind("__", 0) == 0) fail("access to attribute \"" + name + "\" is not safe");
  if (value.is_object()) {
    if (auto found = value.object().attribute(name)) return *found;
  } else if (auto method = method_of(value, name)) {
    return *method;
  } else if (value.is_dict()) {
    if (const Value* found = value.dict().find_name(name)) return *found;
  }
  return Value::undefined("'" + type_name(value) + " object' has no attribute '" + name + "'");
}

Value subscript(const Value& value, const Value& key) {
  if (value.is_undefined()) fail(value.why());
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(key)) return *found;
  } else if (key.is_integral() && value.is_string()) {
    const int64_t place = place_of(key.integer(), static_cast<size_t>(length(value.string())));
    if (place >= 0) return jinja::slice(value.string(), place, place + 1, 1);
  } else if (key.is_integral() && value.is_list() && value.list().kind <= List::Kind::range) {
    const int64_t place = place_of(key.integer(), value.list().items.size());
    if (place >= 0) return value.list().items[static_cast<size_t>(place)];
  }
  if (key.is_string()) return attribute(value, key.string());
  if (key.is_undefined()) return Value::undefined(key.why());
  return Value::undefined("'" + type_name(value) + " object' has no element");
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  if (value.is_undefined()) fail(value.why());
  const bool sliceable = value.is_string() || (value.is_list() && value.list().kind <= List::Kind::range);
  if (!sliceable) fail("'" + type_name(value) + "' object is not subscriptable by a slice");
  const auto number = [&](const Value& part, int64_t absent) {
    if (part.is_none()) return absent;
    if (part.is_undefined()) fail(part.why());
    if (!part.is_integral()) fail("slice indices must be integers or None");
    return part.integer();
  };
  const int64_t size = value.is_string() ? length(value.string()) : static_cast<int64_t>(value.list().items.size());
  const int64_t stride = number(step, 1);
  if (stride == 0) fail("slice step cannot be zero");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const auto bounded = [&](const Value& part, int64_t absent) {
    int64_t place = number(part, absent);
    if (part.is_none()) return place;
    if (place < 0) place += size;
    return std::clamp(place, low, std::max(low, high));
  };
  const int64_t from = bounded(begin, stride > 0 ? 0 : size - 1);
  const int64_t to = bounded(end, stride > 0 ? size : -1);
  budget.charge(static_cast<size_t>(size) / 4 + 1);
  const int64_t small_stride = std::clamp(stride, -size - 1, size + 1);
  if (value.is_string()) return jinja::slice(value.string(), from, to, small_stride);
  std::vector<Value> items;
  for (int64_t i = from; small_stride > 0 ? i < to : i > to; i += small_stride) {
    items.push_back(value.list().items[static_cast<size_t>(i)]);
  }
  return Value::list(std::move(items), value.list().kind);
}

}  // namespace vime::text::jinja
