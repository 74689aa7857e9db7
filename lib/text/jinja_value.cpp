#include "text/jinja_value.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {

void fail(const std::string& message, const std::string& hint) {
  throw Error(ErrorKind::refused, message, hint);
}

namespace {

int checked_depth(int inner) {
  if (inner >= Budget::kDepth) fail("values are nested deeper than " + std::to_string(Budget::kDepth));
  return inner + 1;
}

}  // namespace

Value::Value(List value) {
  int inner = 0;
  for (const Value& item : value.items) inner = std::max(inner, item.depth());
  value.depth = checked_depth(inner);
  data_ = std::make_shared<const List>(std::move(value));
}

Value::Value(Dict value) {
  int inner = 0;
  for (const auto& [key, item] : value.items) inner = std::max({inner, key.depth(), item.depth()});
  value.depth = checked_depth(inner);
  data_ = std::make_shared<const Dict>(std::move(value));
}

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::move(why)};
  return value;
}

Value Value::list(std::vector<Value> items, List::Kind kind, std::string label) {
  List made;
  made.label = std::move(label);
  made.items = std::move(items);
  made.kind = kind;
  return Value(std::move(made));
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  Dict made;
  made.items = std::move(items);
  return Value(std::move(made));
}

int64_t Value::integer() const {
  return is_bool() ? int64_t{std::get<bool>(data_)} : std::get<int64_t>(data_);
}

double Value::real() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return real() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return list().kind == List::Kind::generator || !list().items.empty();
  if (is_dict()) return !dict().items.empty();
  return true;
}

const void* Value::identity() const {
  if (is_string()) return &string();
  if (is_list()) return &list();
  if (is_dict()) return &dict();
  if (is_object()) return &object();
  return nullptr;
}

int Value::depth() const {
  return is_list() ? list().depth : is_dict() ? dict().depth : 0;
}

const Value* Dict::find(const Value& key) const {
  Budget budget;
  for (const auto& [name, value] : items) {
    if (equals(name, key, budget)) return &value;
  }
  return nullptr;
}

const Value* Dict::find_name(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.string() == key) return &value;
  }
  return nullptr;
}

std::optional<Value> Object::attribute(const std::string&) const {
  return std::nullopt;
}

void Object::assign(const std::string&, Value) {
  fail("cannot assign attribute on non-namespace object");
}

Value Object::call(const Arguments&) const {
  fail("'" + type() + "' object is not callable");
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return "str";
  if (value.is_dict()) return "dict";
  if (value.is_object()) return value.object().type();
  switch (value.list().kind) {
    case List::Kind::list:
      return "list";
    case List::Kind::tuple:
      return "tuple";
    case List::Kind::range:
      return "range";
    case List::Kind::view:
      return "dict view";
    case List::Kind::generator:
      break;
  }
  return "generator";
}

namespace {

bool equal_lists(const List& a, const List& b, Budget& budget) {
  if (a.kind != b.kind || a.items.size() != b.items.size() || a.kind == List::Kind::generator) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return equals(x, y, budget); });
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    budget.charge(b.items.size());
    const Value* other = b.find(item.first);
    return other != nullptr && equals(item.second, *other, budget);
  });
}

}  // namespace

bool equals(const Value& a, const Value& b, Budget& budget) {
  budget.charge(1);
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.real() == b.real() : a.integer() == b.integer();
  }
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.identity() != nullptr && a.identity() == b.identity()) return true;
  if (a.is_string() && b.is_string()) {
    budget.charge(std::min(a.string().size(), b.string().size()) / 16);
    return a.string() == b.string();
  }
  if (a.is_list() && b.is_list()) return equal_lists(a.list(), b.list(), budget);
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict(), budget);
  return false;
}

int order(const Value& a, const Value& b, Budget& budget) {
  budget.charge(1);
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
    return a.real() < b.real() ? -1 : a.real() > b.real();
  }
  if (a.is_string() && b.is_string()) {
    budget.charge(std::min(a.string().size(), b.string().size()) / 16);
    return a.string().compare(b.string());  // UTF-8 sorts as its code points do
  }
  if (a.is_list() && b.is_list() && a.list().kind == b.list().kind && a.list().kind <= List::Kind::tuple) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(x[i], y[i], budget)) return order(x[i], y[i], budget);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) fail(value->why());
  }
  fail("'<' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
}

std::vector<Value> elements(const Value& value, Budget& budget) {
  if (value.is_list()) {
    budget.charge(value.list().items.size());
    return value.list().items;
  }
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().items) items.push_back(key);
  } else if (value.is_string()) {
    budget.charge(value.string().size() * 16);
    for (std::string_view character : split_characters(value.string())) items.emplace_back(character);
  } else {
    fail("'" + type_name(value) + "' object is not iterable");
  }
  budget.charge(items.size());
  return items;
}

void check_hashable(const Value& value) {
  const bool changing = value.is_dict() || (value.is_list() && value.list().kind == List::Kind::list);
  if (changing) fail("unhashable type: '" + type_name(value) + "'");
  if (!value.is_list() || value.list().kind != List::Kind::tuple) return;
  for (const Value& item : value.list().items) check_hashable(item);
}

Value from_json(const Json& json, int depth) {
  if (depth > Budget::kDepth) fail("messages are nested deeper than " + std::to_string(Budget::kDepth));
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) fail("the number " + json.dump() + " is too large");
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return valid_utf8(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(from_json(item, depth + 1));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, item] : json.items()) items.emplace_back(key, from_json(item, depth + 1));
      return Value::dict(std::move(items));
    }
    default:
      return None{};
  }
}

}  // namespace vime::text::jinja
