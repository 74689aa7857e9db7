#include "base/error.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

namespace vime {

Error::Error(ErrorKind kind, std::string message, std::string hint)
    : kind_(kind), message_(std::move(message)), hint_(std::move(hint)) {
  text_ = hint_.empty() ? message_ : message_ + " (" + hint_ + ")";
}

Error Error::within(const std::string& context) const {
  return Error(kind_, context + ": " + message_, hint_);
}

int exit_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::refused:
      return 2;
    case ErrorKind::check_failed:
      return 3;
    case ErrorKind::process_failed:
      return 4;
    case ErrorKind::exhausted:
      return 5;
    case ErrorKind::interrupted:
      return 130;
    case ErrorKind::internal:
      return 70;
  }
  return 70;
}

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::refused:
      return "refused";
    case ErrorKind::check_failed:
      return "check_failed";
    case ErrorKind::process_failed:
      return "process_failed";
    case ErrorKind::exhausted:
      return "exhausted";
    case ErrorKind::interrupted:
      return "interrupted";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

std::string errno_text(int error_number) {
  return std::generic_category().message(error_number);
}

void throw_errno(ErrorKind kind, const std::string& what) {
  throw Error(kind, what + ": " + errno_text(errno));
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(ErrorKind::internal,
              std::string(file) + ":" + std::to_string(line) + ": " + message + " [" + condition + "]",
              "this is a bug in vime");
}

}  // namespace vime
