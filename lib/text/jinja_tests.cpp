#include <unordered_map>

#include "text/jinja_filters.hpp"
#include "text/jinja_methods.hpp"
#include "text/jinja_operators.hpp"
#include "text/jinja_text.hpp"

namespace vime::text::jinja {
namespace {

using Test = bool (*)(const Value& value, const Value& argument, Budget& budget);

bool is_iterable(const Value& value) {
  return value.is_list() || value.is_dict() || value.is_string() || value.is_undefined();
}

bool is_sequence(const Value& value) {
  const bool list = value.is_list() && value.list().kind <= List::Kind::range;
  return list || value.is_dict() || value.is_string() || value.is_undefined();
}

int64_t integer_of(const Value& value) {
  if (value.is_undefined()) fail(value.why());
  if (!value.is_integral()) fail("expected an integer, not " + type_name(value));
  return value.integer();
}

bool is_divisible(const Value& value, const Value& by) {
  if (integer_of(by) == 0) fail("division by zero");
  return integer_of(by) == -1 || integer_of(value) % integer_of(by) == 0;
}

bool is_same(const Value& a, const Value& b) {
  if (a.identity() != nullptr || b.identity() != nullptr) {
    return a.identity() == b.identity() || (a.is_string() && b.is_string() && a.string() == b.string());
  }
  if (type_name(a) != type_name(b)) return false;
  return a.is_undefined() || a.is_none() || (a.is_number() && a.real() == b.real());
}

// upper, lower: as str.isupper and str.islower of the text.
bool has_case(const Value& value, const char* method, Budget& budget) {
  return method_of(to_text(value, budget), method)->object().call({}).truthy();
}

// A test without an argument, and one with.
struct Entry {
  bool takes_argument;
  Test test;
};

const std::unordered_map<std::string, Entry>& tests() {
  static const std::unordered_map<std::string, Entry> known{
      {"defined", {false, [](auto& v, auto&, auto&) { return !v.is_undefined(); }}},
      {"undefined", {false, [](auto& v, auto&, auto&) { return v.is_undefined(); }}},
      {"none", {false, [](auto& v, auto&, auto&) { return v.is_none(); }}},
      {"boolean", {false, [](auto& v, auto&, auto&) { return v.is_bool(); }}},
      {"true", {false, [](auto& v, auto&, auto&) { return v.is_bool() && v.truthy(); }}},
      {"false", {false, [](auto& v, auto&, auto&) { return v.is_bool() && !v.truthy(); }}},
      {"integer", {false, [](auto& v, auto&, auto&) { return v.is_int(); }}},
      {"float", {false, [](auto& v, auto&, auto&) { return v.is_float(); }}},
      {"number", {false, [](auto& v, auto&, auto&) { return v.is_number(); }}},
      {"string", {false, [](auto& v, auto&, auto&) { return v.is_string(); }}},
      {"mapping", {false, [](auto& v, auto&, auto&) { return v.is_dict(); }}},
      {"iterable", {false, [](auto& v, auto&, auto&) { return is_iterable(v); }}},
      {"sequence", {false, [](auto& v, auto&, auto&) { return is_sequence(v); }}},
      {"callable",
       {false, [](auto& v, auto&, auto&) { return v.is_undefined() || (v.is_object() && v.object().is_callable()); }}},
      {"escaped", {false, [](auto&, auto&, auto&) { return false; }}},
      {"even", {false, [](auto& v, auto&, auto&) { return integer_of(v) % 2 == 0; }}},
      {"odd", {false, [](auto& v, auto&, auto&) { return integer_of(v) % 2 != 0; }}},
      {"upper", {false, [](auto& v, auto&, auto& b) { return has_case(v, "isupper", b); }}},
      {"lower", {false, [](auto& v, auto&, auto& b) { return has_case(v, "islower", b); }}},
      {"divisibleby", {true, [](auto& v, auto& a, auto&) { return is_divisible(v, a); }}},
      {"sameas", {true, [](auto& v, auto& a, auto&) { return is_same(v, a); }}},
      {"in", {true, [](auto& v, auto& a, auto& b) { return contains(a, v, b); }}},
      {"eq", {true, [](auto& v, auto& a, auto& b) { return compare("==", v, a, b); }}},
      {"ne", {true, [](auto& v, auto& a, auto& b) { return compare("!=", v, a, b); }}},
      {"lt", {true, [](auto& v, auto& a, auto& b) { return compare("<", v, a, b); }}},
      {"le", {true, [](auto& v, auto& a, auto& b) { return compare("<=", v, a, b); }}},
      {"gt", {true, [](auto& v, auto& a, auto& b) { return compare(">", v, a, b); }}},
      {"ge", {true, [](auto& v, auto& a, auto& b) { return compare(">=", v, a, b); }}},
  };
  return known;
}

// Other names of the same tests.
std::string plain_name(const std::string& name) {
  static const std::unordered_map<std::string, std::string> known{
      {"==", "eq"}, {"equalto", "eq"},     {"!=", "ne"}, {"<", "lt"},  {"lessthan", "lt"},
      {"<=", "le"}, {"greaterthan", "gt"}, {">", "gt"},  {">=", "ge"},
  };
  const auto found = known.find(name);
  return found == known.end() ? name : found->second;
}

}  // namespace

bool is_known_test(const std::string& name) {
  return tests().count(plain_name(name)) > 0;
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget) {
  budget.charge(2);
  const auto found = tests().find(plain_name(name));
  if (found == tests().end()) {
    fail(
        "the test \"" + name + "\" is not supported",
        "supported: boolean, callable, defined, divisibleby, eq, equalto, escaped, even, false, float, ge, "
        "greaterthan, "
        "gt, in, integer, iterable, le, lessthan, lower, lt, mapping, ne, none, number, odd, sameas, sequence, string, "
        "true, undefined, upper");
  }
  const size_t expected = found->second.takes_argument ? 1 : 0;
  if (arguments.positional.size() != expected || !arguments.named.empty()) {
    fail("the test \"" + name + "\" takes " + std::to_string(expected) + " arguments, " +
         std::to_string(arguments.positional.size() + arguments.named.size()) + " are given");
  }
  return found->second.test(value, expected == 1 ? arguments.positional[0] : value, budget);
}

}  // namespace vime::text::jinja
