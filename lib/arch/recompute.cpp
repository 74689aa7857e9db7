#include "arch/recompute.hpp"

#include "base/error.hpp"

namespace vime::arch {

Recompute parse_recompute(const std::string& name) {
  if (name == "none") return Recompute::none;
  if (name == "selective") return Recompute::selective;
  if (name == "full") return Recompute::full;
  throw Error(ErrorKind::refused, "recompute: expected none, selective or full, found \"" + name + "\"");
}

}  // namespace vime::arch
