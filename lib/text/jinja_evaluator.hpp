// Renders a template's tree. One Evaluator renders once, on one thread; the tree may serve many at the same time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_scope.hpp"
#include "text/jinja_syntax.hpp"

namespace vime::text::jinja {

// What {{ raise_exception('...') }} throws.
struct Raised {
  std::string message;
};

class Evaluator {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;
  Evaluator(const Variables& variables, std::chrono::system_clock::time_point now);
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  ~Evaluator();

  // Error{refused} for what a template may not do; Raised where it asks for that. `line` says where it was then.
  std::string render(const Block& body);
  int line() const { return line_; }

 private:
  class Macro;
  class Depth;
  enum class Flow { on, leave, next };

  Flow run(const Block& body);
  Flow run(const Statement& statement);
  Flow run_condition(const Statement& statement);
  Flow run_loop(const Statement& statement);
  Flow run_with(const Statement& statement);
  std::string captured(const Block& body);
  void write(const std::string& text);
  void assign(const Target& target, const Value& value);
  void define_macro(const Statement& statement);
  Value call_macro(const Statement& macro, const std::shared_ptr<Scope>& outer, const Arguments& arguments);

  Value evaluate(const Expression& expression);
  Value evaluate_operation(const Expression& expression);
  Value lookup(const std::string& name);
  Value make_dict(const Expression& expression);
  Value compare_all(const Expression& expression);
  Value call(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Arguments arguments_of(const Expression& expression);

  Value global(const std::string& name);
  Value make_namespace(const Arguments& arguments);
  Value make_range(const Arguments& arguments);
  Value format_time(const Arguments& arguments) const;

  std::shared_ptr<Scope> scope_;
  std::vector<std::weak_ptr<Scope>> captured_scopes_;  // cleared at the end: macros and scopes hold each other
  std::vector<std::weak_ptr<Namespace>> namespaces_;   // likewise, they may hold themselves
  Budget budget_;
  std::chrono::system_clock::time_point now_;
  std::string* output_ = nullptr;
  int line_ = 1;
  int depth_ = 0;
  int64_t loop_depth_ = 0;
};

}  // namespace vime::text::jinja
