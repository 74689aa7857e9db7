#include "http/descriptors.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/log.hpp"

namespace vime::http {
namespace {

bool raise_once() {
  // Some programs walk over every descriptor number up to the limit when they start, so a hard limit of 2^30 is not
  // taken.
  constexpr rlim_t kMost = 65536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return true;
  limit.rlim_cur = wanted;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return true;
  log::warning("http", "raise the limit of open files: " + errno_text(errno));
  return false;
}

}  // namespace

void raise_descriptor_limit() {
  [[maybe_unused]] static const bool raised = raise_once();
}

}  // namespace vime::http
