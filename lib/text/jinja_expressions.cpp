#include "text/jinja_expressions.hpp"

#include <charconv>

namespace vime::text::jinja {
namespace {

constexpr int kMaxDepth = 200;  // of expressions within each other

std::unique_ptr<Expression> make(Expression::Kind kind, int line) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  return made;
}

ExpressionPtr binary(std::string sign, int line, ExpressionPtr left, ExpressionPtr right) {
  auto made = make(Expression::Kind::binary, line);
  made->text = std::move(sign);
  made->children.push_back(std::move(left));
  made->children.push_back(std::move(right));
  return made;
}

ExpressionPtr constant(Value value, int line) {
  auto made = make(Expression::Kind::constant, line);
  made->value = std::move(value);
  return made;
}

// Bounds how deep the tree gets. The links of a chain like a + b + c are within each other too.
class Nesting {
 public:
  Nesting(int& depth, const TokenStream& tokens) : depth_(depth), tokens_(tokens) {}
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { depth_ -= added_; }

  void deeper() {
    ++added_;
    if (++depth_ > kMaxDepth) tokens_.refuse("expressions are nested deeper than " + std::to_string(kMaxDepth));
  }

 private:
  int& depth_;
  const TokenStream& tokens_;
  int added_ = 0;
};

}  // namespace

ExpressionPtr ExpressionParser::expression() {
  Nesting nesting(depth_, tokens_);
  nesting.deeper();
  ExpressionPtr value = disjunction();
  while (tokens_.is_name("if")) {
    nesting.deeper();
    auto made = make(Expression::Kind::conditional, tokens_.take().line);
    made->children.push_back(std::move(value));
    made->children.push_back(disjunction());
    made->children.push_back(tokens_.skip_name("else") ? expression() : nullptr);
    value = std::move(made);
  }
  return value;
}

ExpressionPtr ExpressionParser::without_condition() {
  return tuple(false);
}

ExpressionPtr ExpressionParser::tuple(bool with_condition) {
  const auto one = [&] { return with_condition ? expression() : disjunction(); };
  const int line = tokens_.current().line;
  ExpressionPtr first = one();
  if (!tokens_.is_sign(",")) return first;
  auto made = make(Expression::Kind::tuple, line);
  made->children.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    const bool ends = tokens_.is(TokenKind::end_block) || tokens_.is(TokenKind::end_output) || tokens_.is_sign(")") ||
                      tokens_.is_name("in");
    if (ends) break;
    made->children.push_back(one());
  }
  return made;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr value = conjunction();
  Nesting nesting(depth_, tokens_);
  while (tokens_.is_name("or")) {
    nesting.deeper();
    const int line = tokens_.take().line;
    value = binary("or", line, std::move(value), conjunction());
  }
  return value;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr value = negation();
  Nesting nesting(depth_, tokens_);
  while (tokens_.is_name("and")) {
    nesting.deeper();
    const int line = tokens_.take().line;
    value = binary("and", line, std::move(value), negation());
  }
  return value;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  Nesting nesting(depth_, tokens_);
  nesting.deeper();
  auto made = make(Expression::Kind::unary, tokens_.take().line);
  made->text = "not";
  made->children.push_back(negation());
  return made;
}

ExpressionPtr ExpressionParser::comparison() {
  ExpressionPtr first = sum();
  std::unique_ptr<Expression> made;
  while (true) {
    std::string sign;
    for (const char* known : {"==", "!=", "<", "<=", ">", ">="}) {
      if (tokens_.is_sign(known)) sign = known;
    }
    if (tokens_.is_name("in")) sign = "in";
    if (tokens_.is_name("not") && tokens_.ahead().kind == TokenKind::name && tokens_.ahead().text == "in") {
      tokens_.take();
      sign = "not in";
    }
    if (sign.empty()) break;
    const int line = tokens_.take().line;
    if (!made) {
      made = make(Expression::Kind::compare, line);
      made->children.push_back(std::move(first));
    }
    made->operators.push_back(sign);
    made->children.push_back(sum());
  }
  return made ? ExpressionPtr(std::move(made)) : std::move(first);
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr value = concatenation();
  Nesting nesting(depth_, tokens_);
  while (tokens_.is_sign("+") || tokens_.is_sign("-")) {
    nesting.deeper();
    const Token sign = tokens_.take();
    value = binary(sign.text, sign.line, std::move(value), concatenation());
  }
  return value;
}

ExpressionPtr ExpressionParser::concatenation() {
  ExpressionPtr value = product();
  Nesting nesting(depth_, tokens_);
  while (tokens_.is_sign("~")) {
    nesting.deeper();
    const int line = tokens_.take().line;
    value = binary("~", line, std::move(value), product());
  }
  return value;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr value = power();
  Nesting nesting(depth_, tokens_);
  while (tokens_.is_sign("*") || tokens_.is_sign("/") || tokens_.is_sign("//") || tokens_.is_sign("%")) {
    nesting.deeper();
    const Token sign = tokens_.take();
    value = binary(sign.text, sign.line, std::move(value), power());
  }
  return value;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr value = unary(true);
  Nesting nesting(depth_, tokens_);
  while (tokens_.is_sign("**")) {
    nesting.deeper();
    const int line = tokens_.take().line;
    value = binary("**", line, std::move(value), unary(true));
  }
  return value;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  Nesting nesting(depth_, tokens_);
  nesting.deeper();
  ExpressionPtr value;
  if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
    const Token sign = tokens_.take();
    auto made = make(Expression::Kind::unary, sign.line);
    made->text = sign.text;
    made->children.push_back(unary(false));
    value = std::move(made);
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const int line = tokens_.current().line;
  if (tokens_.is(TokenKind::name)) return name_or_constant();
  if (tokens_.is(TokenKind::string)) {
    std::string text;
    while (tokens_.is(TokenKind::string)) text += tokens_.take().text;  // neighbours are one string
    return constant(text, line);
  }
  if (tokens_.is(TokenKind::integer) || tokens_.is(TokenKind::real)) return number();
  if (tokens_.is_sign("[")) return list();
  if (tokens_.is_sign("{")) return dict();
  if (!tokens_.skip_sign("(")) tokens_.refuse("expected an expression");
  Nesting nesting(depth_, tokens_);
  nesting.deeper();
  ExpressionPtr value = tokens_.is_sign(")") ? make(Expression::Kind::tuple, line) : tuple(true);
  tokens_.expect_sign(")");
  return value;
}

ExpressionPtr ExpressionParser::name_or_constant() {
  const Token token = tokens_.take();
  if (token.text == "true" || token.text == "True") return constant(true, token.line);
  if (token.text == "false" || token.text == "False") return constant(false, token.line);
  if (token.text == "none" || token.text == "None") return constant(None{}, token.line);
  saw_varargs = saw_varargs || token.text == "varargs";
  saw_kwargs = saw_kwargs || token.text == "kwargs";
  if (token.text == "caller") tokens_.refuse("\"caller\" is not supported");
  auto made = make(Expression::Kind::name, token.line);
  made->text = token.text;
  return made;
}

ExpressionPtr ExpressionParser::number() {
  const Token token = tokens_.take();
  const std::string& text = token.text;
  if (token.kind == TokenKind::real) {
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return constant(value, token.line);
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  }
  const char* begin = text.data() + (base == 10 ? 0 : 2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size())
    tokens_.refuse("\"" + text + "\" is not a number I can hold");
  return constant(value, token.line);
}

ExpressionPtr ExpressionParser::list() {
  auto made = make(Expression::Kind::list, tokens_.take().line);
  while (!tokens_.skip_sign("]")) {
    if (!made->children.empty()) tokens_.expect_sign(",");
    if (tokens_.skip_sign("]")) break;
    made->children.push_back(expression());
  }
  return made;
}

ExpressionPtr ExpressionParser::dict() {
  auto made = make(Expression::Kind::dict, tokens_.take().line);
  while (!tokens_.skip_sign("}")) {
    if (!made->children.empty()) tokens_.expect_sign(",");
    if (tokens_.skip_sign("}")) break;
    made->children.push_back(expression());
    tokens_.expect_sign(":");
    made->children.push_back(expression());
  }
  return made;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
  Nesting nesting(depth_, tokens_);
  while (true) {
    const int line = tokens_.current().line;
    if (tokens_.is_sign("[")) {
      value = subscript(std::move(value));
    } else if (tokens_.is_sign("(")) {
      auto made = make(Expression::Kind::call, line);
      made->children.push_back(std::move(value));
      arguments(*made);
      value = std::move(made);
    } else if (tokens_.skip_sign(".")) {
      const bool is_index = tokens_.is(TokenKind::integer);
      auto made = make(is_index ? Expression::Kind::subscript : Expression::Kind::attribute, line);
      made->children.push_back(std::move(value));
      if (is_index) {
        made->children.push_back(number());
      } else {
        made->text = tokens_.take_name();
      }
      value = std::move(made);
    } else {
      return value;
    }
    nesting.deeper();
  }
}

// [index], [begin:end], [begin:end:step]
ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
  const int line = tokens_.take().line;
  ExpressionPtr parts[3];
  size_t colons = 0;
  while (!tokens_.is_sign("]")) {
    if (tokens_.skip_sign(":")) {
      if (++colons > 2) tokens_.refuse("a third \":\" in a subscript");
      continue;
    }
    if (parts[colons]) tokens_.refuse("expected \"]\"");
    parts[colons] = colons == 0 ? tuple(true) : expression();
  }
  tokens_.expect_sign("]");
  auto made = make(colons == 0 ? Expression::Kind::subscript : Expression::Kind::slice, line);
  made->children.push_back(std::move(value));
  if (colons == 0) {
    if (!parts[0]) tokens_.refuse("expected an index");
    made->children.push_back(std::move(parts[0]));
  } else {
    for (ExpressionPtr& part : parts) made->children.push_back(std::move(part));
  }
  return made;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
  Nesting nesting(depth_, tokens_);
  while (true) {
    nesting.deeper();  // once more than there are links
    if (tokens_.is_sign("|")) {
      tokens_.take();
      value = filter(std::move(value));
    } else if (tokens_.is_name("is")) {
      value = test(std::move(value));
    } else if (tokens_.is_sign("(")) {
      auto made = make(Expression::Kind::call, tokens_.current().line);
      made->children.push_back(std::move(value));
      arguments(*made);
      value = std::move(made);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value) {
  Nesting nesting(depth_, tokens_);
  while (tokens_.skip_sign("|")) {
    nesting.deeper();
    value = filter(std::move(value));
  }
  return value;
}

std::string ExpressionParser::dotted_name() {
  std::string name = tokens_.take_name();
  while (tokens_.skip_sign(".")) name += "." + tokens_.take_name();
  return name;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr value) {
  auto made = make(Expression::Kind::filter, tokens_.current().line);
  made->text = dotted_name();
  made->children.push_back(std::move(value));
  if (tokens_.is_sign("(")) arguments(*made);
  return made;
}

// `is name`, `is not name`, `is name(arguments)` or `is name argument`.
ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  auto made = make(Expression::Kind::test, line);
  made->text = dotted_name();
  made->children.push_back(std::move(value));
  const bool literal = tokens_.is(TokenKind::string) || tokens_.is(TokenKind::integer) || tokens_.is(TokenKind::real) ||
                       tokens_.is_sign("[") || tokens_.is_sign("{");
  const bool name =
      tokens_.is(TokenKind::name) && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and");
  if (tokens_.is_sign("(")) {
    arguments(*made);
  } else if (literal || name) {
    if (tokens_.is_name("is")) tokens_.refuse("two tests without \"and\" between them");
    made->positional.push_back(postfix(primary()));
  }
  if (!negated) return made;
  auto inverse = make(Expression::Kind::unary, line);
  inverse->text = "not";
  inverse->children.push_back(std::move(made));
  return inverse;
}

void ExpressionParser::arguments(Expression& call) {
  Nesting nesting(depth_, tokens_);
  nesting.deeper();
  tokens_.expect_sign("(");
  bool first = true;
  while (!tokens_.skip_sign(")")) {
    if (!first) tokens_.expect_sign(",");
    if (!first && tokens_.skip_sign(")")) return;
    first = false;
    if (tokens_.is_sign("*") || tokens_.is_sign("**"))
      tokens_.refuse("arguments unpacked with \"*\" are not supported");
    const bool named =
        tokens_.is(TokenKind::name) && tokens_.ahead().kind == TokenKind::sign && tokens_.ahead().text == "=";
    if (named) {
      std::string name = tokens_.take_name();
      tokens_.take();
      call.named.emplace_back(std::move(name), expression());
    } else {
      if (!call.named.empty()) tokens_.refuse("expected a named argument");
      call.positional.push_back(expression());
    }
  }
}

}  // namespace vime::text::jinja
