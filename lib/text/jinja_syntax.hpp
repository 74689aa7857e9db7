// A template as a tree. Made by the parser, read by the evaluator; immutable after that.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind {
    constant,     // value
    name,         // text
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value...
    attribute,    // children[0] . text
    subscript,    // children[0] [ children[1] ]
    slice,        // children[0] [ children[1] : children[2] : children[3] ], each of the three may be null
    call,         // children[0] ( positional, named )
    filter,       // children[0] | text ( positional, named )
    test,         // children[0] is text ( positional, named )
    unary,        // text: "not", "-", "+"
    binary,       // text: "and", "or", "+", "~"...
    compare,      // children[0], then children[i + 1] compared by operators[i]
    conditional,  // children[0] if children[1] else children[2], which may be null
  };
  Kind kind = Kind::constant;
  int line = 1;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

// What `set` and `for` give values to: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;  // "" but in `ns.attribute`
  std::vector<Target> parts;
};

struct Statement {
  enum class Kind {
    data,       // text
    output,     // expression
    condition,  // branches; a null condition is `else`
    loop,       // target, expression, filter, body, otherwise
    set,        // target, expression
    set_block,  // target, body, filters applied to its text
    macro,      // text, parameters, body
    with,       // assignments, body
    scope,      // body, with variables of its own
    leave,      // break
    next,       // continue
  };
  Kind kind = Kind::data;
  int line = 1;
  std::string text;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr filter;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, which may be null
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Block body;
  Block otherwise;
  bool takes_varargs = false;  // macro: mentions them
  bool takes_kwargs = false;
};

}  // namespace vime::text::jinja
