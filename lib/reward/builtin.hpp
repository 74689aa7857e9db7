// The built-in rewards by name: what `reward.type` and a sample's own type may say. Any thread may call; nothing
// blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reward/score.hpp"

namespace vime::reward {

const std::vector<std::string>& builtin_names();
bool is_builtin(const std::string& type);

// What built-in rewards need besides the item; made once.
class Builtins {
 public:
  // `pattern`: of the regex reward; "" = every sample's label is its expression. Error{refused} when it is wrong.
  explicit Builtins(const std::string& pattern);
  ~Builtins();
  Builtins(Builtins&&) noexcept;

  // `type` is one of builtin_names().
  Score score(const std::string& type, const ScoreItem& item) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error{refused}: `what` ("reward.type"), the list, the nearest name, or vime's name for another project's word.
[[noreturn]] void refuse_type(const std::string& what, const std::string& type, bool builtins_only);

}  // namespace vime::reward
