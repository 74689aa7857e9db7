#include "text/jinja_scope.hpp"

#include "text/jinja_methods.hpp"

namespace vime::text::jinja {

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [known, old] : variables_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(const std::string& name) const {
  for (const auto& [known, value] : attributes_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void Namespace::assign(const std::string& name, Value value) {
  for (auto& [known, old] : attributes_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(name, std::move(value));
}

std::optional<Value> Loop::attribute(const std::string& name) const {
  const auto index = static_cast<int64_t>(index_);
  const auto length = static_cast<int64_t>(items_->size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return depth_;
  if (name == "depth0") return depth_ - 1;
  if (name == "previtem") {
    return index > 0 ? (*items_)[index_ - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? (*items_)[index_ + 1] : Value::undefined("there is no next item");
  }
  const auto function = [&](Function::Body body) {
    return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(name, std::move(body))));
  };
  if (name == "cycle") {
    return function([index](const Arguments& arguments) {
      if (arguments.positional.empty()) fail("no items for cycling given");
      return arguments.positional[static_cast<size_t>(index) % arguments.positional.size()];
    });
  }
  if (name == "changed") {
    return function([last = last_change_, has = has_changed_](const Arguments& arguments) -> Value {
      Budget budget;
      const Value now = Value::list(arguments.positional, List::Kind::tuple);
      if (*has && equals(*last, now, budget)) return false;
      *last = now;
      *has = true;
      return true;
    });
  }
  return std::nullopt;
}

}  // namespace vime::text::jinja
