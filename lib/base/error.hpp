// The one exception type of vime, and the exit statuses it maps to.
// Thrown for what stops the present operation; expected outcomes (an HTTP status, an exit status) are values instead.
#pragma once

#include <exception>
#include <string>

namespace vime {

// Callers branch on the kind, never on the text.
enum class ErrorKind {
  refused,         // usage, spec, too few devices, missing files: nothing was started (exit 2)
  check_failed,    // a self-check found a mismatch (exit 3)
  process_failed,  // a process or engine failed for good, or did not answer in time (exit 4)
  exhausted,       // memory, disk or ports ran out while running (exit 5)
  interrupted,     // the user asked to stop (exit 130)
  internal,        // a bug in vime (exit 70)
};

class Error : public std::exception {
 public:
  // message: what went wrong, where, expected and found. hint: the cure, may be empty.
  Error(ErrorKind kind, std::string message, std::string hint = "");

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  // message, and the hint in parentheses where there is one
  const char* what() const noexcept override { return text_.c_str(); }

  // The same error with "context: " before its message.
  Error within(const std::string& context) const;

 private:
  ErrorKind kind_;
  std::string message_;
  std::string hint_;
  std::string text_;
};

int exit_status(ErrorKind kind);
const char* kind_name(ErrorKind kind);  // "refused", "check_failed", ...

// "No such file or directory" for an errno value.
std::string errno_text(int error_number);

// Throws Error{kind, "<what>: <errno text>"}.
[[noreturn]] void throw_errno(ErrorKind kind, const std::string& what);

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace vime

// Always-on assertion for vime's own bugs.
#define VIME_CHECK(condition, message)                                               \
  do {                                                                               \
    if (!(condition)) ::vime::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
