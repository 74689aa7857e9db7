#include "text/jinja_token_stream.hpp"

#include <algorithm>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

const Token& TokenStream::ahead() const {
  return tokens_[std::min(place_ + 1, tokens_.size() - 1)];
}

Token TokenStream::take() {
  Token token = tokens_[place_];
  if (token.kind != TokenKind::end) ++place_;
  return token;
}

bool TokenStream::skip_sign(std::string_view sign) {
  if (!is_sign(sign)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) refuse("expected \"" + std::string(sign) + "\"");
}

void TokenStream::expect(TokenKind kind, const char* what) {
  if (!is(kind)) refuse(std::string("expected ") + what);
  take();
}

std::string TokenStream::take_name() {
  if (!is(TokenKind::name)) refuse("expected a name");
  return take().text;
}

void TokenStream::refuse(const std::string& what) const {
  const Token& token = current();
  const bool named = token.kind == TokenKind::name || token.kind == TokenKind::sign || token.kind == TokenKind::integer;
  fail("line " + std::to_string(token.line) + ": " + what + (named ? ", found \"" + token.text + "\"" : ""));
}

}  // namespace vime::text::jinja
