// The values that a template computes with, which behave as Python's do. Values are immutable but for namespaces; a
// copy shares what it holds. Everything that can grow is charged to a Budget, so that a hostile template ends in an
// error. One thread per rendering.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.hpp"

namespace vime::text::jinja {

[[noreturn]] void fail(const std::string& message, const std::string& hint = "");

// What one rendering may use.
class Budget {
 public:
  static constexpr int64_t kWork = 400'000'000;  // about a second of steps and bytes
  static constexpr int kDepth = 100;             // of values within each other

  void charge(size_t work) {
    left_ -= static_cast<int64_t>(work);
    if (left_ < 0) fail("takes more work than a template may");
  }

 private:
  int64_t left_ = kWork;
};

class Value;
struct Undefined {
  std::string why;  // "'x' is undefined"
};
struct None {};
struct List {
  enum class Kind { list, tuple, range, view, generator };
  std::vector<Value> items;
  Kind kind = Kind::list;
  std::string label;  // how Python shows a range, and what stands before the items of a view
  int depth = 1;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  const Value* find(const Value& key) const;
  const Value* find_name(std::string_view key) const;
};
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
// Loops, namespaces, macros, functions, bound methods.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type() const = 0;  // for messages: "loop"
  virtual std::optional<Value> attribute(const std::string& name) const;
  virtual void assign(const std::string& name, Value value);  // fails unless it is a namespace
  virtual bool is_callable() const { return false; }
  virtual Value call(const Arguments& arguments) const;
};

class Value {
 public:
  Value() : data_(Undefined{"a value is undefined"}) {}
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(List value);
  Value(Dict value);
  Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}
  static Value undefined(std::string why);
  static Value list(std::vector<Value> items, List::Kind kind = List::Kind::list, std::string label = "");
  static Value dict(std::vector<std::pair<Value, Value>> items);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<Items>(data_); }  // of any List::Kind
  bool is_dict() const { return std::holds_alternative<Members>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }

  const std::string& why() const { return std::get<Undefined>(data_).why; }
  const std::string& string() const { return *std::get<Text>(data_); }
  const List& list() const { return *std::get<Items>(data_); }
  const Dict& dict() const { return *std::get<Members>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  int64_t integer() const;  // of an int or a bool
  double real() const;      // of any number

  bool truthy() const;
  const void* identity() const;  // of what it shares, or nullptr
  int depth() const;             // of lists and dicts within each other

 private:
  using Text = std::shared_ptr<const std::string>;
  using Items = std::shared_ptr<const List>;
  using Members = std::shared_ptr<const Dict>;
  std::variant<Undefined, None, bool, int64_t, double, Text, Items, Members, std::shared_ptr<Object>> data_;
};

std::string type_name(const Value& value);  // Python's: "str", "dict"
bool equals(const Value& a, const Value& b, Budget& budget);
// Negative, 0 or positive; fails on types that have no order between them.
int order(const Value& a, const Value& b, Budget& budget);
// What a `for` walks over; fails on what has no elements. Strings give their characters, dicts their keys.
std::vector<Value> elements(const Value& value, Budget& budget);
// Fails on lists and dicts, which Python takes neither as keys nor in sets.
void check_hashable(const Value& value);
Value from_json(const Json& json, int depth = 0);

}  // namespace vime::text::jinja
