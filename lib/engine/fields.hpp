// Strict reading of a request's JSON object: every key is asked for by name and type, null means absent, and finish()
// refuses what nobody asked for. Errors are Error{refused}, which the HTTP edge answers with 400.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::engine {

class Fields {
 public:
  // `where` opens error texts: "sampling_params". `object` must outlive this. Refuses anything but an object.
  Fields(const Json& object, std::string where);

  // The value, or null when the key is absent or null.
  const Json* find(const std::string& key);
  std::optional<int64_t> integer(const std::string& key, int64_t least, int64_t most);
  std::optional<double> number(const std::string& key);
  std::optional<bool> boolean(const std::string& key);
  std::optional<std::string> text(const std::string& key);
  std::optional<std::vector<int32_t>> ids(const std::string& key);
  // A key that this engine does not act on: accepted while it says what happens anyway.
  void neutral(const std::string& key, const std::vector<Json>& values);
  // Accepted whatever it says.
  void ignore(const std::string& key);
  // Refuses keys that were not asked for, with the nearest known one.
  void finish() const;

  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

// A list of token ids; `what` names it in errors.
std::vector<int32_t> token_list(const Json& value, const std::string& what);

}  // namespace vime::engine
