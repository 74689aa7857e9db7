// What the operators, attributes and subscripts of templates do, as Python and Jinja's sandbox do it. One thread per
// Budget. Error{refused} for what Python raises an exception for.
#pragma once

#include <string>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

constexpr size_t kMaxText = size_t{64} << 20;  // bytes of one string
constexpr size_t kMaxItems = 1'000'000;        // of one list

Value binary_operation(const std::string& sign, const Value& left, const Value& right, Budget& budget);
Value unary_operation(const std::string& sign, const Value& value);
bool compare(const std::string& sign, const Value& left, const Value& right, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);

// value.name: a method comes before a key. value[key]: a key comes before a method.
Value attribute(const Value& value, const std::string& name);
Value subscript(const Value& value, const Value& key);
Value slice(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);

Value concatenated(const Value& left, const Value& right, Budget& budget);  // ~

}  // namespace vime::text::jinja
