#include <algorithm>
#include <cctype>

#include "base/strings.hpp"
#include "text/jinja_filter_table.hpp"
#include "text/jinja_filters.hpp"
#include "text/jinja_methods.hpp"
#include "text/jinja_operators.hpp"
#include "text/python_text.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {
namespace {

// "a.b.0" of a value; a number is an index.
Value path_of(const Value& value, const Value& path) {
  if (path.is_integral()) return subscript(value, path);
  if (!path.is_string()) fail("an attribute must be a string or an integer, not " + type_name(path));
  Value found = value;
  for (const std::string& part : split(path.string(), '.')) {
    const bool index = !part.empty() && part.size() < 10 &&
                       std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    found = subscript(found, index ? Value(int64_t{std::stoi(part)}) : Value(part));
  }
  return found;
}

// Upper and lower case count the same unless asked otherwise.
Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(lower(value.string())) : value;
}

Value length_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  const Value& value = call.value;
  if (value.is_undefined()) return 0;
  if (value.is_string()) return length(value.string());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().items.size());
  if (value.is_list() && value.list().kind != List::Kind::generator) {
    return static_cast<int64_t>(value.list().items.size());
  }
  fail("object of type '" + type_name(value) + "' has no len()", value.is_list() ? "add | list before it" : "");
}

Value list_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  return Value::list(elements(call.value, call.budget));
}

Value end_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  const bool first = call.name == "first";
  if (!first && call.value.is_list() && call.value.list().kind == List::Kind::generator) {
    fail("'generator' object is not reversible", "add | list before it");
  }
  const std::vector<Value> items = elements(call.value, call.budget);
  if (items.empty()) return Value::undefined("No " + call.name + " item, sequence was empty.");
  return first ? items.front() : items.back();
}

Value join_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"d", "attribute"});
  const std::string separator = given.is_given(0) ? to_text(*given.given(0), call.budget) : "";
  const bool by_path = given.is_given(1) && !given.given(1)->is_none();
  std::string text;
  bool first = true;
  for (const Value& item : elements(call.value, call.budget)) {
    if (!first) text += separator;
    first = false;
    text += to_text(by_path ? path_of(item, *given.given(1)) : item, call.budget);
    call.budget.charge(separator.size() / 8);
    if (text.size() > kMaxText) fail("a string longer than 64 MiB");
  }
  return text;
}

Value reverse_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  if (call.value.is_list() && call.value.list().kind == List::Kind::generator) {
    fail("reverse: argument must be iterable", "add | list before it");
  }
  std::vector<Value> items = elements(call.value, call.budget);
  std::reverse(items.begin(), items.end());
  if (!call.value.is_string()) return Value::list(std::move(items), List::Kind::generator);
  std::string text;
  for (const Value& item : items) text += item.string();
  return text;
}

// The values of one attribute, or of a filter applied to each.
Value map_filter(const FilterCall& call) {
  if (!call.value.truthy()) return Value::list({}, List::Kind::generator);
  std::vector<Value> items = elements(call.value, call.budget);
  if (call.arguments.positional.empty()) {
    const Parameters given(call.arguments, call.name, {"attribute", "default"});
    for (Value& item : items) {
      item = path_of(item, given.required(0));
      if (item.is_undefined() && given.is_given(1)) item = *given.given(1);
    }
  } else {
    const Value& filter = call.arguments.positional[0];
    if (!filter.is_string()) fail("map: expected the name of a filter");
    Arguments rest = call.arguments;
    rest.positional.erase(rest.positional.begin());
    for (Value& item : items) item = apply_filter(filter.string(), item, rest, call.budget);
  }
  return Value::list(std::move(items), List::Kind::generator);
}

// select, reject, selectattr, rejectattr: what a test is true for, or the value itself is.
Value select_filter(const FilterCall& call) {
  if (!call.value.truthy()) return Value::list({}, List::Kind::generator);
  const bool by_path = call.name == "selectattr" || call.name == "rejectattr";
  const bool keeps = call.name == "select" || call.name == "selectattr";
  Arguments rest = call.arguments;
  Value path;
  if (by_path) {
    if (rest.positional.empty()) fail(call.name + ": expected the name of an attribute");
    path = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    if (!rest.positional[0].is_string()) fail(call.name + ": expected the name of a test");
    test = rest.positional[0].string();
    rest.positional.erase(rest.positional.begin());
  }
  std::vector<Value> kept;
  for (const Value& item : elements(call.value, call.budget)) {
    const Value subject = by_path ? path_of(item, path) : item;
    const bool passes = test.empty() ? subject.truthy() : apply_test(test, subject, rest, call.budget);
    if (passes == keeps) kept.push_back(item);
  }
  return Value::list(std::move(kept), List::Kind::generator);
}

void sort_by(std::vector<std::pair<Value, Value>>& keyed, bool reverse, Budget& budget) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? order(b.first, a.first, budget) < 0 : order(a.first, b.first, budget) < 0;
  });
}

Value sort_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"reverse", "case_sensitive", "attribute"});
  const bool by_path = given.is_given(2) && !given.given(2)->is_none();
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : elements(call.value, call.budget)) {
    if (!by_path) {
      keyed.emplace_back(folded(item, given.flag(1, false)), item);
      continue;
    }
    std::vector<Value> keys;  // "a,b" sorts by a, then by b
    const Value& path = *given.given(2);
    for (const std::string& part : path.is_string() ? split(path.string(), ',') : std::vector<std::string>{""}) {
      keys.push_back(folded(path_of(item, path.is_string() ? Value(part) : path), given.flag(1, false)));
    }
    keyed.emplace_back(Value::list(std::move(keys)), item);
  }
  sort_by(keyed, given.flag(0, false), call.budget);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return Value::list(std::move(items));
}

Value dictsort_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"case_sensitive", "by", "reverse"});
  if (!call.value.is_dict()) fail("dictsort: expected a dict, not " + type_name(call.value));
  const std::string by = given.is_given(1) ? given.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : call.value.dict().items) {
    keyed.emplace_back(folded(by == "key" ? key : value, given.flag(0, false)),
                       Value::list({key, value}, List::Kind::tuple));
  }
  sort_by(keyed, given.flag(2, false), call.budget);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return Value::list(std::move(items));
}

Value items_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {});
  std::vector<Value> items;
  if (!call.value.is_undefined()) {
    if (!call.value.is_dict()) fail("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : call.value.dict().items) {
      items.push_back(Value::list({key, value}, List::Kind::tuple));
    }
  }
  return Value::list(std::move(items), List::Kind::generator);
}

Value extreme_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"case_sensitive", "attribute"});
  const bool by_path = given.is_given(1) && !given.given(1)->is_none();
  const std::vector<Value> items = elements(call.value, call.budget);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return folded(by_path ? path_of(item, *given.given(1)) : item, given.flag(0, false));
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int found = order(key(items[i]), key(items[best]), call.budget);
    if (call.name == "max" ? found > 0 : found < 0) best = i;
  }
  return items[best];
}

Value sum_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"attribute", "start"});
  const bool by_path = given.is_given(0) && !given.given(0)->is_none();
  Value total = given.is_given(1) ? *given.given(1) : Value(0);
  for (const Value& item : elements(call.value, call.budget)) {
    total = binary_operation("+", total, by_path ? path_of(item, *given.given(0)) : item, call.budget);
  }
  return total;
}

Value unique_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"case_sensitive", "attribute"});
  const bool by_path = given.is_given(1) && !given.given(1)->is_none();
  std::vector<Value> seen;
  std::vector<Value> items;
  for (const Value& item : elements(call.value, call.budget)) {
    const Value key = folded(by_path ? path_of(item, *given.given(1)) : item, given.flag(0, false));
    check_hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equals(other, key, call.budget); }))
      continue;
    seen.push_back(key);
    items.push_back(item);
  }
  return Value::list(std::move(items), List::Kind::generator);
}

Value batch_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"linecount", "fill_with"});
  const int64_t count = given.integer(0, 0);
  if (count < 1 || count > static_cast<int64_t>(kMaxItems)) fail("batch: a linecount of " + std::to_string(count));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : elements(call.value, call.budget)) {
    if (static_cast<int64_t>(batch.size()) == count) batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (given.is_given(1) && !given.given(1)->is_none()) {
      call.budget.charge(static_cast<size_t>(count));
      batch.resize(static_cast<size_t>(count), *given.given(1));
    }
    batches.push_back(Value::list(std::move(batch)));
  }
  return Value::list(std::move(batches), List::Kind::generator);
}

// Tuples of a key and the items that have it, in the order of the keys.
Value groupby_filter(const FilterCall& call) {
  const Parameters given(call.arguments, call.name, {"attribute", "default", "case_sensitive"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : elements(call.value, call.budget)) {
    Value key = path_of(item, given.required(0));
    if (key.is_undefined() && given.is_given(1)) key = *given.given(1);
    keyed.emplace_back(folded(key, given.flag(2, false)), Value::list({key, item}));
  }
  sort_by(keyed, false, call.budget);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < keyed.size() && equals(keyed[i].first, keyed[first].first, call.budget); ++i) {
      members.push_back(keyed[i].second.list().items[1]);
    }
    groups.push_back(
        Value::list({keyed[first].second.list().items[0], Value::list(std::move(members))}, List::Kind::tuple));
  }
  return Value::list(std::move(groups));
}

}  // namespace

FilterTable sequence_filters() {
  return {
      {"length", length_filter},   {"count", length_filter},      {"list", list_filter},
      {"first", end_filter},       {"last", end_filter},          {"join", join_filter},
      {"reverse", reverse_filter}, {"map", map_filter},           {"select", select_filter},
      {"reject", select_filter},   {"selectattr", select_filter}, {"rejectattr", select_filter},
      {"sort", sort_filter},       {"dictsort", dictsort_filter}, {"items", items_filter},
      {"max", extreme_filter},     {"min", extreme_filter},       {"sum", sum_filter},
      {"unique", unique_filter},   {"batch", batch_filter},       {"groupby", groupby_filter},
  };
}

}  // namespace vime::text::jinja
