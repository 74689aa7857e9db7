#include "text/jinja_methods.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "text/jinja_operators.hpp"
#include "text/jinja_text.hpp"
#include "text/python_text.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {

Parameters::Parameters(const Arguments& arguments, std::string function, std::vector<std::string> names)
    : function_(std::move(function)), names_(std::move(names)), values_(names_.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail(function_ + "() takes at most " + std::to_string(names_.size()) + " arguments, " +
         std::to_string(arguments.positional.size()) + " are given");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail(function_ + "() has no argument \"" + name + "\"");
    values_[static_cast<size_t>(found - names_.begin())] = &value;
  }
}

const Value& Parameters::required(size_t index) const {
  if (values_[index] == nullptr) fail(function_ + "() needs the argument \"" + names_[index] + "\"");
  return *values_[index];
}

const std::string& Parameters::text(size_t index) const {
  const Value& value = required(index);
  if (value.is_undefined()) fail(value.why());
  if (!value.is_string()) {
    fail(function_ + "(): \"" + names_[index] + "\" must be a string, not " + type_name(value));
  }
  return value.string();
}

std::optional<std::string> Parameters::text_or_none(size_t index) const {
  if (!is_given(index) || values_[index]->is_none()) return std::nullopt;
  return text(index);
}

int64_t Parameters::integer(size_t index, int64_t absent) const {
  if (!is_given(index)) return absent;
  if (!values_[index]->is_integral()) {
    fail(function_ + "(): \"" + names_[index] + "\" must be an integer, not " + type_name(*values_[index]));
  }
  return values_[index]->integer();
}

bool Parameters::flag(size_t index, bool absent) const {
  return is_given(index) ? values_[index]->truthy() : absent;
}

namespace {

using StringMethod = Value (*)(const std::string& self, const std::string& name, const Arguments& arguments);

Value strings(const std::vector<std::string>& parts) {
  std::vector<Value> items(parts.begin(), parts.end());
  return Value::list(std::move(items));
}

Value strip_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"chars"});
  const Side side = name == "strip" ? Side::both : name == "lstrip" ? Side::left : Side::right;
  return strip(self, given.text_or_none(0), side);
}

Value split_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"sep", "maxsplit"});
  const auto separator = given.text_or_none(0);
  if (separator && separator->empty()) fail("empty separator");
  return strings(python_split(self, separator, given.integer(1, -1), name == "rsplit"));
}

Value splitlines_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  return strings(split_lines(self, Parameters(arguments, name, {"keepends"}).flag(0, false)));
}

// One text, or a tuple of which one is enough.
Value ends_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {name == "startswith" ? "prefix" : "suffix"});
  const auto matches = [&](const Value& part) {
    if (part.is_undefined()) fail(part.why());
    if (!part.is_string()) fail(name + " first arg must be str or a tuple of str, not " + type_name(part));
    const std::string& text = part.string();
    if (text.size() > self.size()) return false;
    return self.compare(name == "startswith" ? 0 : self.size() - text.size(), text.size(), text) == 0;
  };
  const Value& wanted = given.required(0);
  if (!wanted.is_list() || wanted.list().kind != List::Kind::tuple) return matches(wanted);
  const auto& parts = wanted.list().items;
  return std::any_of(parts.begin(), parts.end(), matches);
}

Value replace_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"old", "new", "count"});
  const std::string& to = given.text(1);
  const std::string& from = given.text(0);
  const size_t most = from.empty() ? self.size() + 1 : self.size() / from.size();
  if (!to.empty() && most > kMaxText / to.size()) fail("a string longer than 64 MiB");
  return replaced(self, from, to, given.integer(2, -1));
}

Value case_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {});
  if (name == "upper") return upper(self);
  if (name == "lower") return lower(self);
  if (name == "title") return title(self);
  return capitalized(self);
}

Value find_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"sub"});
  const std::string& wanted = given.text(0);
  if (name == "count") {
    if (wanted.empty()) return length(self) + 1;
    int64_t count = 0;
    for (size_t at = 0; (at = self.find(wanted, at)) != std::string::npos; at += wanted.size()) ++count;
    return count;
  }
  const size_t at = name[0] == 'r' ? self.rfind(wanted) : self.find(wanted);
  if (at != std::string::npos) return length(std::string_view(self).substr(0, at));
  if (name == "index" || name == "rindex") fail("substring not found");
  return -1;
}

Value join_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"iterable"});
  Budget budget;
  std::string text;
  bool first = true;
  for (const Value& item : elements(given.required(0), budget)) {
    if (item.is_undefined()) fail(item.why());
    if (!item.is_string()) fail("join(): expected str instances, " + type_name(item) + " found");
    if (!first) text += self;
    first = false;
    text += item.string();
    if (text.size() > kMaxText) fail("a string longer than 64 MiB");
  }
  return text;
}

Value affix_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"affix"});
  const std::string& affix = given.text(0);
  if (affix.size() > self.size()) return self;
  if (name == "removeprefix") return self.compare(0, affix.size(), affix) == 0 ? self.substr(affix.size()) : self;
  const size_t rest = self.size() - affix.size();
  return self.compare(rest, affix.size(), affix) == 0 ? self.substr(0, rest) : self;
}

Value partition_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {"sep"});
  const std::string& separator = given.text(0);
  if (separator.empty()) fail("empty separator");
  const bool right = name == "rpartition";
  const size_t at = right ? self.rfind(separator) : self.find(separator);
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = right ? std::vector<Value>{"", "", self} : std::vector<Value>{self, "", ""};
  } else {
    parts = {self.substr(0, at), separator, self.substr(at + separator.size())};
  }
  return Value::list(std::move(parts), List::Kind::tuple);
}

Value is_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(arguments, name, {});
  if (name == "isascii") return is_ascii(self);
  bool cased = false;
  for (size_t i = 0; i < self.size();) {
    const Character character = character_at(self, i);
    const char32_t code = character.code;
    const bool has_case = is_cased(code);
    cased = cased || has_case;
    bool right = true;
    if (name == "isspace") right = is_python_space(code);
    if (name == "isalpha") right = is_letter(code);
    if (name == "isdigit" || name == "isdecimal" || name == "isnumeric") right = is_number(code);
    if (name == "isalnum") right = is_letter(code) || is_number(code);
    if (name == "isupper") right = !has_case || upper_case(code) == code;
    if (name == "islower") right = !has_case || lower_case(code) == code;
    if (!right) return false;
    i += character.length;
  }
  return name == "isupper" || name == "islower" ? cased : !self.empty();
}

Value justify_method(const std::string& self, const std::string& name, const Arguments& arguments) {
  const Parameters given(
      arguments, name,
      name == "zfill" ? std::vector<std::string>{"width"} : std::vector<std::string>{"width", "fillchar"});
  const int64_t width = given.integer(0, 0);
  if (width > static_cast<int64_t>(kMaxText)) fail("a string longer than 64 MiB");
  const int64_t missing = width - length(self);
  if (missing <= 0) return self;
  if (name == "zfill") {
    const bool sign = !self.empty() && (self[0] == '-' || self[0] == '+');
    return self.substr(0, sign ? 1 : 0) + std::string(static_cast<size_t>(missing), '0') + self.substr(sign ? 1 : 0);
  }
  const std::string fill = given.is_given(1) ? given.text(1) : " ";
  if (length(fill) != 1) fail("The fill character must be exactly one character long");
  const auto padding = [&](int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += fill;
    return text;
  };
  if (name == "ljust") return self + padding(missing);
  if (name == "rjust") return padding(missing) + self;
  const int64_t left = missing / 2 + (missing & width & 1);
  return padding(left) + self + padding(missing - left);
}

struct NamedMethod {
  std::string_view name;
  StringMethod method;  // nullptr: Python has it, templates here do not
};
constexpr auto kStringMethods = std::to_array<NamedMethod>({
    {"strip", strip_method},
    {"lstrip", strip_method},
    {"rstrip", strip_method},
    {"split", split_method},
    {"rsplit", split_method},
    {"splitlines", splitlines_method},
    {"startswith", ends_method},
    {"endswith", ends_method},
    {"replace", replace_method},
    {"upper", case_method},
    {"lower", case_method},
    {"title", case_method},
    {"capitalize", case_method},
    {"find", find_method},
    {"rfind", find_method},
    {"index", find_method},
    {"rindex", find_method},
    {"count", find_method},
    {"join", join_method},
    {"removeprefix", affix_method},
    {"removesuffix", affix_method},
    {"partition", partition_method},
    {"rpartition", partition_method},
    {"isspace", is_method},
    {"isalpha", is_method},
    {"isdigit", is_method},
    {"isdecimal", is_method},
    {"isnumeric", is_method},
    {"isalnum", is_method},
    {"isupper", is_method},
    {"islower", is_method},
    {"isascii", is_method},
    {"ljust", justify_method},
    {"rjust", justify_method},
    {"center", justify_method},
    {"zfill", justify_method},
    {"casefold", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", nullptr},
    {"format_map", nullptr},
    {"isidentifier", nullptr},
    {"isprintable", nullptr},
    {"istitle", nullptr},
    {"maketrans", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
});

Value function(std::string name, Function::Body body) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(std::move(name), std::move(body))));
}

std::optional<Value> string_method(const Value& self, const std::string& name) {
  for (const NamedMethod& known : kStringMethods) {
    if (known.name != name) continue;
    if (known.method == nullptr) fail("the method str." + name + " is not supported");
    return function(name, [self, name, method = known.method](const Arguments& arguments) {
      return method(self.string(), name, arguments);
    });
  }
  return std::nullopt;
}

std::optional<Value> dict_method(const Value& self, const std::string& name) {
  for (const char* changing : {"clear", "pop", "popitem", "setdefault", "update"}) {
    if (name == changing) fail("the method dict." + name + " is not allowed: a template cannot change values");
  }
  if (name == "get") {
    return function(name, [self](const Arguments& arguments) {
      const Parameters given(arguments, "get", {"key", "default"});
      if (const Value* found = self.dict().find(given.required(0))) return *found;
      return given.is_given(1) ? given.required(1) : Value(None{});
    });
  }
  if (name == "copy") return function(name, [self](const Arguments&) { return self; });
  if (name != "items" && name != "keys" && name != "values") return std::nullopt;
  return function(name, [self, name](const Arguments& arguments) {
    const Parameters given(arguments, name, {});
    std::vector<Value> items;
    for (const auto& [key, value] : self.dict().items) {
      if (name == "items") {
        items.push_back(Value::list({key, value}, List::Kind::tuple));
      } else {
        items.push_back(name == "keys" ? key : value);
      }
    }
    return Value::list(std::move(items), List::Kind::view, "dict_" + name);
  });
}

std::optional<Value> list_method(const Value& self, const std::string& name) {
  const List::Kind kind = self.list().kind;
  if (kind == List::Kind::list) {
    for (const char* changing : {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}) {
      if (name == changing) {
        fail("the method list." + name + " is not allowed: a template cannot change values", "write list + [item]");
      }
    }
    if (name == "copy") return function(name, [self](const Arguments&) { return self; });
  }
  if (kind > List::Kind::range || (name != "count" && name != "index")) return std::nullopt;
  return function(name, [self, name](const Arguments& arguments) -> Value {
    const Parameters given(arguments, name, {"value"});
    Budget budget;
    int64_t count = 0;
    for (size_t i = 0; i < self.list().items.size(); ++i) {
      if (!equals(self.list().items[i], given.required(0), budget)) continue;
      if (name == "index") return static_cast<int64_t>(i);
      ++count;
    }
    if (name == "index") fail("the value is not in the list");
    return count;
  });
}

}  // namespace

std::optional<Value> method_of(const Value& value, const std::string& name) {
  if (value.is_string()) return string_method(value, name);
  if (value.is_dict()) return dict_method(value, name);
  if (value.is_list()) return list_method(value, name);
  return std::nullopt;
}

}  // namespace vime::text::jinja
