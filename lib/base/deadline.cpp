#include "base/deadline.hpp"

#include <ctime>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime {

milliseconds Deadline::remaining() const {
  const auto left = std::chrono::ceil<milliseconds>(at_ - SteadyClock::now());
  return left.count() < 0 ? milliseconds(0) : left;
}

void Deadline::check(const std::string& waited_for) const {
  if (!passed()) return;
  throw Error(ErrorKind::process_failed,
              waited_for + ": no answer within " + format_seconds(static_cast<double>(timeout_.count()) / 1000));
}

double seconds_since(SteadyClock::time_point start) {
  return seconds_between(start, SteadyClock::now());
}

double seconds_between(SteadyClock::time_point start, SteadyClock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace vime
