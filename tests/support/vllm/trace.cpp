#include "support/vllm/trace.hpp"

#include "base/files.hpp"

namespace vime::stand_in {

void Trace::line(const std::string& text) {
  if (path_.empty()) return;
  const std::lock_guard lock(mutex_);
  append_line(path_, text);
}

}  // namespace vime::stand_in
