// The expressions of jinja_evaluator.hpp, and the functions that every template has.
#include <ctime>

#include "text/jinja_evaluator.hpp"
#include "text/jinja_filters.hpp"
#include "text/jinja_methods.hpp"
#include "text/jinja_operators.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as Jinja's sandbox
constexpr int kMaxDepth = 1000;

Value as_value(std::shared_ptr<Object> object) {
  return Value(std::move(object));
}

// Takes the place of an earlier item with the same key.
void put(std::vector<std::pair<Value, Value>>& items, Value key, Value value, Budget& budget) {
  for (auto& [known, old] : items) {
    if (equals(known, key, budget)) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

}  // namespace

Value Evaluator::evaluate(const Expression& expression) {
  if (depth_ >= kMaxDepth) fail("expressions and macros are nested deeper than " + std::to_string(kMaxDepth));
  struct Deeper {
    int& depth;
    explicit Deeper(int& now) : depth(++now) {}
    ~Deeper() { --depth; }
  } const deeper(depth_);
  budget_.charge(5);
  line_ = expression.line;
  switch (expression.kind) {
    case Expression::Kind::constant:
      return expression.value;
    case Expression::Kind::name:
      return lookup(expression.text);
    case Expression::Kind::list:
      return Value::list(evaluate_all(expression.children));
    case Expression::Kind::tuple:
      return Value::list(evaluate_all(expression.children), List::Kind::tuple);
    case Expression::Kind::dict:
      return make_dict(expression);
    case Expression::Kind::call:
      return call(expression);
    case Expression::Kind::compare:
      return compare_all(expression);
    case Expression::Kind::conditional:
      if (evaluate(*expression.children[1]).truthy()) return evaluate(*expression.children[0]);
      if (expression.children[2]) return evaluate(*expression.children[2]);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
    default:
      return evaluate_operation(expression);
  }
}

Value Evaluator::evaluate_operation(const Expression& expression) {
  Value value = evaluate(*expression.children[0]);
  switch (expression.kind) {
    case Expression::Kind::attribute:
      return attribute(value, expression.text);
    case Expression::Kind::subscript:
      return subscript(value, evaluate(*expression.children[1]));
    case Expression::Kind::slice: {
      const auto part = [&](size_t i) {
        return expression.children[i] ? evaluate(*expression.children[i]) : Value(None{});
      };
      const Value begin = part(1);
      const Value end = part(2);
      return slice(value, begin, end, part(3), budget_);
    }
    case Expression::Kind::filter:
      return apply_filter(expression.text, value, arguments_of(expression), budget_);
    case Expression::Kind::test:
      return apply_test(expression.text, value, arguments_of(expression), budget_);
    case Expression::Kind::unary:
      return unary_operation(expression.text, value);
    case Expression::Kind::binary:
      if (expression.text == "and") return value.truthy() ? evaluate(*expression.children[1]) : value;
      if (expression.text == "or") return value.truthy() ? value : evaluate(*expression.children[1]);
      return binary_operation(expression.text, value, evaluate(*expression.children[1]), budget_);
    default:
      fail("an expression of an unknown kind");
  }
}

Value Evaluator::lookup(const std::string& name) {
  if (const Value* found = scope_->find(name)) return *found;
  return global(name);
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& expression : expressions) values.push_back(evaluate(*expression));
  return values;
}

Value Evaluator::make_dict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i < expression.children.size(); i += 2) {
    Value key = evaluate(*expression.children[i]);
    check_hashable(key);
    put(items, std::move(key), evaluate(*expression.children[i + 1]), budget_);
  }
  return Value::dict(std::move(items));
}

Value Evaluator::compare_all(const Expression& expression) {
  Value left = evaluate(*expression.children[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1]);
    if (!compare(expression.operators[i], left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

Arguments Evaluator::arguments_of(const Expression& expression) {
  Arguments arguments;
  arguments.positional = evaluate_all(expression.positional);
  for (const auto& [name, value] : expression.named) arguments.named.emplace_back(name, evaluate(*value));
  return arguments;
}

Value Evaluator::call(const Expression& expression) {
  const Value callee = evaluate(*expression.children[0]);
  const Arguments arguments = arguments_of(expression);
  line_ = expression.line;
  if (callee.is_undefined()) fail(callee.why());
  if (!callee.is_object()) fail("'" + type_name(callee) + "' object is not callable");
  budget_.charge(20);
  for (const auto& value : arguments.positional) {
    if (value.is_string()) budget_.charge(value.string().size() / 8);
  }
  return callee.object().call(arguments);
}

Value Evaluator::global(const std::string& name) {
  const auto function = [&](Function::Body body) {
    return as_value(std::make_shared<Function>(name, std::move(body)));
  };
  if (name == "range") return function([this](const Arguments& arguments) { return make_range(arguments); });
  if (name == "namespace") return function([this](const Arguments& arguments) { return make_namespace(arguments); });
  if (name == "strftime_now") return function([this](const Arguments& arguments) { return format_time(arguments); });
  if (name == "raise_exception") {
    return function([](const Arguments& arguments) -> Value {
      throw Raised{Parameters(arguments, "raise_exception", {"message"}).text(0)};
    });
  }
  if (name == "dict") {
    return function([this](const Arguments& arguments) {
      std::vector<std::pair<Value, Value>> items;
      const Arguments unnamed{arguments.positional, {}};
      const Parameters given(unnamed, "dict", {"mapping"});
      if (given.is_given(0)) {
        if (!given.required(0).is_dict()) fail("dict(): only a mapping and named arguments are supported");
        items = given.required(0).dict().items;
      }
      for (const auto& [key, value] : arguments.named) put(items, key, value, budget_);
      return Value::dict(std::move(items));
    });
  }
  for (const char* other : {"cycler", "joiner", "lipsum"}) {
    if (name == other) {
      fail("the function \"" + name + "\" is not supported",
           "supported: dict, namespace, raise_exception, range, strftime_now");
    }
  }
  return Value::undefined("'" + name + "' is undefined");
}

Value Evaluator::make_namespace(const Arguments& arguments) {
  const auto made = std::make_shared<Namespace>();
  namespaces_.push_back(made);
  const Arguments unnamed{arguments.positional, {}};
  const Parameters given(unnamed, "namespace", {"mapping"});
  if (given.is_given(0)) {
    if (!given.required(0).is_dict()) fail("namespace(): expected a mapping, not " + type_name(given.required(0)));
    for (const auto& [key, value] : given.required(0).dict().items) {
      if (key.is_string()) made->assign(key.string(), value);
    }
  }
  for (const auto& [name, value] : arguments.named) made->assign(name, value);
  return as_value(made);
}

Value Evaluator::make_range(const Arguments& arguments) {
  const Parameters given(arguments, "range", {"start", "stop", "step"});
  const bool one = !given.is_given(1);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (given.required(i).is_undefined()) fail(given.required(i).why());
  }
  given.required(0);
  const int64_t begin = one ? 0 : given.integer(0, 0);
  const int64_t end = one ? given.integer(0, 0) : given.integer(1, 0);
  const int64_t step = given.integer(2, 1);
  if (step == 0) fail("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) fail("range() is longer than " + std::to_string(kMaxRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget_.charge(items.size());
  std::string label = "range(" + std::to_string(begin) + ", " + std::to_string(end);
  if (step != 1) label += ", " + std::to_string(step);
  return Value::list(std::move(items), List::Kind::range, label + ")");
}

// The local time now, in strftime's notation.
Value Evaluator::format_time(const Arguments& arguments) const {
  const std::string format = Parameters(arguments, "strftime_now", {"format"}).text(0);
  if (format.size() > 200) fail("strftime_now: a format of more than 200 bytes");
  if (format.empty()) return "";
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now_);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::string text(4096, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return valid_utf8(text);
}

}  // namespace vime::text::jinja
