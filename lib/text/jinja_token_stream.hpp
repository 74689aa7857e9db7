// The tokens of a template, read one after the other. One thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_lexer.hpp"

namespace vime::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[place_]; }
  const Token& ahead() const;
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

}  // namespace vime::text::jinja
