#include "text/jinja_parser.hpp"

#include <algorithm>

#include "text/jinja_expressions.hpp"

namespace vime::text::jinja {
namespace {

constexpr int kMaxDepth = 100;  // of blocks within each other
constexpr const char* kSupported =
    "for, if, elif, else, set, macro, with, break, continue, generation, raw and comments are supported";

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Block run() {
    Block body = block({});
    return body;
  }

 private:
  // Up to one of the tags `ends`, whose name stays to be read; none: up to the end of the template.
  Block block(const std::vector<std::string>& ends) {
    if (++depth_ > kMaxDepth) tokens_.refuse("blocks are nested deeper than " + std::to_string(kMaxDepth));
    Block body;
    while (!tokens_.is(TokenKind::end)) {
      if (tokens_.is(TokenKind::data)) {
        auto made = make(Statement::Kind::data);
        made->text = tokens_.take().text;
        body.push_back(std::move(made));
      } else if (tokens_.is(TokenKind::begin_output)) {
        tokens_.take();
        auto made = make(Statement::Kind::output);
        made->expression = expressions_.tuple(true);
        tokens_.expect(TokenKind::end_output, "\"}}\"");
        body.push_back(std::move(made));
      } else {
        tokens_.expect(TokenKind::begin_block, "a block");
        if (tokens_.is(TokenKind::name) && std::find(ends.begin(), ends.end(), tokens_.current().text) != ends.end()) {
          --depth_;
          return body;
        }
        if (auto made = statement()) body.push_back(std::move(made));
      }
    }
    if (!ends.empty()) tokens_.refuse("expected {% " + ends.back() + " %}, found the end of the template");
    --depth_;
    return body;
  }

  std::unique_ptr<Statement> make(Statement::Kind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = tokens_.current().line;
    return made;
  }

  void end_tag() { tokens_.expect(TokenKind::end_block, "\"%}\""); }

  std::unique_ptr<const Statement> statement() {
    if (tokens_.is_name("for")) return loop();
    if (tokens_.is_name("if")) return condition();
    if (tokens_.is_name("set")) return set();
    if (tokens_.is_name("macro")) return macro();
    if (tokens_.is_name("with")) return with();
    if (tokens_.is_name("generation")) return generation();
    if (tokens_.is_name("break") || tokens_.is_name("continue")) return leave();
    if (tokens_.is(TokenKind::name)) {
      fail("line " + std::to_string(tokens_.current().line) + ": {% " + tokens_.current().text +
               " %} is not supported here",
           kSupported);
    }
    tokens_.refuse("expected the name of a block");
  }

  Target target(bool with_attribute) {
    std::vector<Target> parts;
    bool is_tuple = false;
    const bool bracketed = tokens_.skip_sign("(");
    do {
      if (is_tuple && !tokens_.is(TokenKind::name) && !tokens_.is_sign("(")) break;
      Target part;
      if (tokens_.is_sign("(")) {
        if (++depth_ > kMaxDepth) tokens_.refuse("targets are nested too deep");
        part = target(false);
        --depth_;
      } else {
        part.name = tokens_.take_name();
      }
      if (with_attribute && tokens_.skip_sign(".")) part.attribute = tokens_.take_name();
      parts.push_back(std::move(part));
      is_tuple = is_tuple || tokens_.is_sign(",");
    } while (tokens_.skip_sign(","));
    if (bracketed) tokens_.expect_sign(")");
    if (!is_tuple) return std::move(parts[0]);
    Target made;
    made.parts = std::move(parts);
    return made;
  }

  std::unique_ptr<const Statement> loop() {
    auto made = make(Statement::Kind::loop);
    tokens_.take();
    made->target = target(false);
    if (!tokens_.skip_name("in")) tokens_.refuse("expected \"in\"");
    made->expression = expressions_.without_condition();
    if (tokens_.skip_name("if")) made->filter = expressions_.expression();
    if (tokens_.is_name("recursive")) tokens_.refuse("recursive loops are not supported");
    end_tag();
    ++loops_;
    made->body = block({"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") {
      end_tag();
      made->otherwise = block({"endfor"});
      tokens_.take();
    }
    end_tag();
    return made;
  }

  std::unique_ptr<const Statement> condition() {
    auto made = make(Statement::Kind::condition);
    while (true) {
      const std::string name = tokens_.take().text;
      ExpressionPtr when = name == "else" ? nullptr : expressions_.tuple(true);
      end_tag();
      Block body = name == "else" ? block({"endif"}) : block({"elif", "else", "endif"});
      made->branches.emplace_back(std::move(when), std::move(body));
      if (tokens_.is_name("endif")) break;
    }
    tokens_.take();
    end_tag();
    return made;
  }

  std::unique_ptr<const Statement> set() {
    auto made = make(Statement::Kind::set);
    tokens_.take();
    made->target = target(true);
    if (tokens_.skip_sign("=")) {
      made->expression = expressions_.tuple(true);
      end_tag();
      return made;
    }
    made->kind = Statement::Kind::set_block;
    auto text = std::make_unique<Expression>();  // the evaluator puts the block's text in its place
    text->kind = Expression::Kind::name;
    text->line = made->line;
    text->text = "";
    made->expression = expressions_.filters(std::move(text));
    end_tag();
    made->body = block({"endset"});
    tokens_.take();
    end_tag();
    return made;
  }

  std::unique_ptr<const Statement> macro() {
    auto made = make(Statement::Kind::macro);
    tokens_.take();
    made->text = tokens_.take_name();
    tokens_.expect_sign("(");
    while (!tokens_.skip_sign(")")) {
      if (!made->parameters.empty()) tokens_.expect_sign(",");
      if (tokens_.skip_sign(")")) break;
      std::string name = tokens_.take_name();
      ExpressionPtr absent;
      if (tokens_.skip_sign("=")) {
        absent = expressions_.expression();
      } else if (!made->parameters.empty() && made->parameters.back().second) {
        tokens_.refuse("a parameter without a default behind one with");
      }
      made->parameters.emplace_back(std::move(name), std::move(absent));
    }
    end_tag();
    const bool varargs = std::exchange(expressions_.saw_varargs, false);
    const bool kwargs = std::exchange(expressions_.saw_kwargs, false);
    const int loops = std::exchange(loops_, 0);
    made->body = block({"endmacro"});
    loops_ = loops;
    made->takes_varargs = std::exchange(expressions_.saw_varargs, varargs);
    made->takes_kwargs = std::exchange(expressions_.saw_kwargs, kwargs);
    tokens_.take();
    end_tag();
    return made;
  }

  std::unique_ptr<const Statement> with() {
    auto made = make(Statement::Kind::with);
    tokens_.take();
    while (!tokens_.is(TokenKind::end_block)) {
      if (!made->assignments.empty()) tokens_.expect_sign(",");
      Target name;
      name.name = tokens_.take_name();
      tokens_.expect_sign("=");
      made->assignments.emplace_back(std::move(name), expressions_.expression());
    }
    end_tag();
    made->body = block({"endwith"});
    tokens_.take();
    end_tag();
    return made;
  }

  // Marks what the model wrote; the text is the same without it.
  std::unique_ptr<const Statement> generation() {
    auto made = make(Statement::Kind::scope);
    tokens_.take();
    end_tag();
    const int loops = std::exchange(loops_, 0);
    made->body = block({"endgeneration"});
    loops_ = loops;
    tokens_.take();
    end_tag();
    return made;
  }

  std::unique_ptr<const Statement> leave() {
    if (loops_ == 0) tokens_.refuse("outside a loop");
    auto made = make(tokens_.is_name("break") ? Statement::Kind::leave : Statement::Kind::next);
    tokens_.take();
    end_tag();
    return made;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;  // around the present place
};

}  // namespace

Block parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace vime::text::jinja
