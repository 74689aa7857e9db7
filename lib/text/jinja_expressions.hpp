// Reads the expressions of a template, with Jinja 3.1's precedence. Used by the statement parser, which shares the
// token stream.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_lexer.hpp"
#include "text/jinja_syntax.hpp"

namespace vime::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[place_]; }
  const Token& ahead() const { return tokens_[std::min(place_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::sign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && current().text == name; }
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect(TokenKind kind, const char* what);
  std::string take_name();
  // Error{refused} with the current line.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  std::vector<Token> tokens_;
  size_t place_ = 0;
};

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
