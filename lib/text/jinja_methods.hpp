// The methods of strings, dicts and lists that templates may call. One thread per rendering.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

// A function as a value.
class Function final : public Object {
 public:
  using Body = std::function<Value(const Arguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string type() const override { return name_; }
  bool is_callable() const override { return true; }
  Value call(const Arguments& arguments) const override { return body_(arguments); }

 private:
  std::string name_;
  Body body_;
};

// The method `name` of a value, bound to it; none where Python has no such method. Error{refused} for one that Python
// has and a template cannot use here: those that change a list or dict, and rare ones.
std::optional<Value> method_of(const Value& value, const std::string& name);

// Arguments by place or name; the arguments must outlive it. Error{refused} when there are too many, or one has no such
// name.
class Parameters {
 public:
  Parameters(const Arguments& arguments, std::string function, std::vector<std::string> names);
  Parameters(Arguments&& arguments, std::string function, std::vector<std::string> names) = delete;
  const Value* given(size_t index) const { return values_[index]; }  // nullptr: not given
  bool is_given(size_t index) const { return values_[index] != nullptr; }
  const Value& required(size_t index) const;
  const std::string& text(size_t index) const;  // required, a string
  std::optional<std::string> text_or_none(size_t index) const;
  int64_t integer(size_t index, int64_t absent) const;
  bool flag(size_t index, bool absent) const;

 private:
  std::string function_;
  std::vector<std::string> names_;
  std::vector<const Value*> values_;
};

}  // namespace vime::text::jinja
