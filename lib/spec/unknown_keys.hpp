// What to say about a key that the table does not have: where it belongs, what vime calls it, or the nearest name.
#pragma once

#include <string>

#include "spec/keys.hpp"

namespace vime::spec {

struct UnknownKey {
  std::string message;     // unknown key "learning_rate" in "trainer" (vime calls it "lr")
  std::string meant_path;  // the key that was probably meant ("trainer.lr"), or ""
};

UnknownKey explain_unknown_key(const Section& section, const std::string& name);

}  // namespace vime::spec
