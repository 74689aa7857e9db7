// Reads the expressions of a template, with Jinja 3.1's precedence. Used by the statement parser, which shares the
// token stream.
#pragma once

#include <string>

#include "text/jinja_syntax.hpp"
#include "text/jinja_token_stream.hpp"

namespace vime::text::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression();         // with `if` and `else`
  ExpressionPtr without_condition();  // what stands behind `in` of a loop
  // One expression, or several with commas between them, which are a tuple.
  ExpressionPtr tuple(bool with_condition);
  // A filter chain without a value before it, applied to `value`.
  ExpressionPtr filters(ExpressionPtr value);
  // Whether a name was read since the last call: macros take `varargs` and `kwargs` only if they mention them.
  bool saw_varargs = false;
  bool saw_kwargs = false;

 private:
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr name_or_constant();
  ExpressionPtr number();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr filter(ExpressionPtr value);
  ExpressionPtr test(ExpressionPtr value);
  void arguments(Expression& call);
  std::string dotted_name();

  TokenStream& tokens_;
  int depth_ = 0;
};

}  // namespace vime::text::jinja
