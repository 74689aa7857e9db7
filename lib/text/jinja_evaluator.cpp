#include "text/jinja_evaluator.hpp"

#include "text/jinja_filters.hpp"
#include "text/jinja_methods.hpp"
#include "text/jinja_operators.hpp"
#include "text/jinja_text.hpp"

namespace vime::text::jinja {

// Bounds how deep statements, expressions and macros are within each other while they run: each takes stack.
class Evaluator::Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) {
    if (depth_ >= kMost) fail("statements, expressions and macros are nested deeper than " + std::to_string(kMost));
    ++depth_;
  }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --depth_; }

 private:
  static constexpr int kMost = 1000;
  int& depth_;
};

class Evaluator::Macro final : public Object {
 public:
  Macro(Evaluator& evaluator, const Statement& statement, std::shared_ptr<Scope> outer)
      : evaluator_(evaluator), statement_(statement), outer_(std::move(outer)) {}
  std::string type() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  std::optional<Value> attribute(const std::string& name) const override {
    if (name == "name") return Value(statement_.text);
    return std::nullopt;
  }
  Value call(const Arguments& arguments) const override { return evaluator_.call_macro(statement_, outer_, arguments); }

 private:
  Evaluator& evaluator_;
  const Statement& statement_;
  std::shared_ptr<Scope> outer_;
};

Evaluator::Evaluator(const Variables& variables, std::chrono::system_clock::time_point now)
    : scope_(std::make_shared<Scope>(nullptr)), now_(now) {
  for (const auto& [name, value] : variables) scope_->set(name, value);
}

Evaluator::~Evaluator() {
  for (const auto& scope : captured_scopes_) {
    if (const auto held = scope.lock()) held->clear();
  }
  for (const auto& space : namespaces_) {
    if (const auto held = space.lock()) held->clear();
  }
}

std::string Evaluator::render(const Block& body) {
  scope_ = std::make_shared<Scope>(scope_);
  return captured(body);
}

std::string Evaluator::captured(const Block& body) {
  std::string text;
  std::string* const before = output_;
  output_ = &text;
  try {
    run(body);
  } catch (...) {
    output_ = before;
    throw;
  }
  output_ = before;
  return text;
}

void Evaluator::write(const std::string& text) {
  budget_.charge(text.size() / 8 + 1);
  if (output_->size() + text.size() > kMaxText) fail("the output is longer than 64 MiB");
  *output_ += text;
}

Evaluator::Flow Evaluator::run(const Block& body) {
  for (const auto& statement : body) {
    const Flow flow = run(*statement);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  const Depth depth(depth_);
  budget_.charge(10);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::data:
      write(statement.text);
      return Flow::on;
    case Statement::Kind::output:
      write(to_text(evaluate(*statement.expression), budget_));
      return Flow::on;
    case Statement::Kind::condition:
      return run_condition(statement);
    case Statement::Kind::loop:
      return run_loop(statement);
    case Statement::Kind::set:
      assign(statement.target, evaluate(*statement.expression));
      return Flow::on;
    case Statement::Kind::set_block: {
      const auto outer = scope_;
      scope_ = std::make_shared<Scope>(outer);
      scope_->set("", captured(statement.body));  // the name that stands for it in the filters
      const Value value = evaluate(*statement.expression);
      scope_ = outer;
      assign(statement.target, value);
      return Flow::on;
    }
    case Statement::Kind::macro:
      define_macro(statement);
      return Flow::on;
    case Statement::Kind::with:
    case Statement::Kind::scope:
      return run_with(statement);
    case Statement::Kind::leave:
      return Flow::leave;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::run_condition(const Statement& statement) {
  for (const auto& [when, body] : statement.branches) {
    if (!when || evaluate(*when).truthy()) return run(body);
  }
  return Flow::on;
}

// Each round has a scope of its own: what it sets is gone after it.
Evaluator::Flow Evaluator::run_loop(const Statement& statement) {
  const auto outer = scope_;
  std::vector<Value> items = elements(evaluate(*statement.expression), budget_);
  if (statement.filter) {
    std::vector<Value> kept;
    for (Value& item : items) {
      scope_ = std::make_shared<Scope>(outer);
      assign(statement.target, item);
      if (evaluate(*statement.filter).truthy()) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  const auto shared = std::make_shared<const std::vector<Value>>(std::move(items));
  const auto loop = std::make_shared<Loop>(shared, ++loop_depth_);
  Flow flow = Flow::on;
  for (size_t i = 0; i < shared->size() && flow != Flow::leave; ++i) {
    scope_ = std::make_shared<Scope>(outer);
    loop->move_to(i);
    scope_->set("loop", std::static_pointer_cast<Object>(loop));
    assign(statement.target, (*shared)[i]);
    flow = run(statement.body);
    budget_.charge(20);
  }
  --loop_depth_;
  scope_ = outer;
  if (!shared->empty()) return Flow::on;
  scope_ = std::make_shared<Scope>(outer);
  flow = run(statement.otherwise);
  scope_ = outer;
  return flow;
}

// `with` reads all its values before it sets the first.
Evaluator::Flow Evaluator::run_with(const Statement& statement) {
  const auto outer = scope_;
  std::vector<Value> values;
  for (const auto& [target, expression] : statement.assignments) values.push_back(evaluate(*expression));
  scope_ = std::make_shared<Scope>(outer);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  const Flow flow = run(statement.body);
  scope_ = outer;
  return flow;
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (!target.parts.empty()) {
    const std::vector<Value> items = elements(value, budget_);
    if (value.is_undefined()) fail(value.why());
    if (items.size() != target.parts.size()) {
      fail("expected " + std::to_string(target.parts.size()) + " values to unpack, found " +
           std::to_string(items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value);
    return;
  }
  const Value space = lookup(target.name);
  if (space.is_undefined()) fail(space.why());
  if (!space.is_object()) fail("cannot assign attribute on non-namespace object");
  space.object().assign(target.attribute, value);
}

void Evaluator::define_macro(const Statement& statement) {
  captured_scopes_.push_back(scope_);
  scope_->set(statement.text, std::static_pointer_cast<Object>(std::make_shared<Macro>(*this, statement, scope_)));
}

Value Evaluator::call_macro(const Statement& macro, const std::shared_ptr<Scope>& outer, const Arguments& arguments) {
  const Depth depth(depth_);
  const auto caller = scope_;
  const auto inner = std::make_shared<Scope>(outer);
  const size_t count = macro.parameters.size();
  if (arguments.positional.size() > count && !macro.takes_varargs) {
    fail("macro '" + macro.text + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
  std::vector<Value> rest;
  for (size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
  std::vector<std::pair<Value, Value>> others;
  std::vector<std::optional<Value>> given(count);
  for (size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) given[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t place = 0;
    while (place < count && macro.parameters[place].first != name) ++place;
    if (place < count && given[place]) fail("macro '" + macro.text + "' got the argument '" + name + "' twice");
    if (place == count && !macro.takes_kwargs) {
      fail("macro '" + macro.text + "' takes no keyword argument '" + name + "'");
    }
    if (place < count) {
      given[place] = value;
    } else {
      others.emplace_back(name, value);
    }
  }
  if (macro.takes_varargs) inner->set("varargs", Value::list(std::move(rest), List::Kind::tuple));
  if (macro.takes_kwargs) inner->set("kwargs", Value::dict(std::move(others)));
  scope_ = inner;
  for (size_t i = 0; i < count; ++i) {
    const auto& [name, absent] = macro.parameters[i];
    if (!given[i])
      given[i] = absent ? evaluate(*absent) : Value::undefined("parameter '" + name + "' was not provided");
    inner->set(name, *given[i]);
  }
  std::string text = captured(macro.body);
  scope_ = caller;
  return text;
}

}  // namespace vime::text::jinja
