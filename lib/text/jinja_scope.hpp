// Variables of a template while it is rendered, and the objects that carry some: namespaces and loops.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.hpp"

namespace vime::text::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}
  const Value* find(const std::string& name) const;  // here or further out
  void set(const std::string& name, Value value);    // here
  void clear() { variables_.clear(); }

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<std::string, Value>> variables_;
};

class Namespace final : public Object {
 public:
  std::string type() const override { return "Namespace"; }
  std::optional<Value> attribute(const std::string& name) const override;
  void assign(const std::string& name, Value value) override;
  void clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// `loop` inside a `for`.
class Loop final : public Object {
 public:
  Loop(std::shared_ptr<const std::vector<Value>> items, int64_t depth) : items_(std::move(items)), depth_(depth) {}
  void move_to(size_t index) { index_ = index; }
  std::string type() const override { return "LoopContext"; }
  std::optional<Value> attribute(const std::string& name) const override;

 private:
  std::shared_ptr<const std::vector<Value>> items_;
  int64_t depth_;
  size_t index_ = 0;
  std::shared_ptr<Value> last_change_ = std::make_shared<Value>();  // what `changed` was given the last time
  std::shared_ptr<bool> has_changed_ = std::make_shared<bool>(false);
};

}  // namespace vime::text::jinja
