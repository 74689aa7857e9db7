#include "proc/ask_fork.hpp"

#include <unistd.h>

#include <stdexcept>

#include "base/error.hpp"
#include "fixture.hpp"
#include "proc/process_table.hpp"

namespace vime::proc::test {
namespace {

std::string refusal(const std::function<std::string()>& answer, milliseconds timeout = milliseconds(20'000)) {
  try {
    return "answered: " + ask_fork("the oracle", timeout, answer);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::process_failed);
    return error.what();
  }
}

bool has_children() {
  return !living_descendants(read_process_table(), ::getpid()).empty() || !zombies_of(::getpid()).empty();
}

}  // namespace

TEST_CASE("a fork's answer comes whole, however long, and none of the fork's changes stay") {
  int asked = 0;
  const std::string long_text(300'000, 'x');  // several times what a pipe holds
  CHECK(ask_fork("the oracle", milliseconds(20'000), [&] {
          ++asked;
          return long_text;
        }) == long_text);
  CHECK(asked == 0);
  CHECK(ask_fork("the oracle", milliseconds(20'000), [] { return std::string(); }).empty());
  CHECK_FALSE(has_children());
}

TEST_CASE("a fork that hangs, dies or throws is an error that names who was asked, and is gone") {
  CHECK(refusal(
            [] {
              for (;;) ::pause();
              return std::string();
            },
            milliseconds(100)) == "the oracle: no answer within 100 ms");
  CHECK_FALSE(has_children());
  CHECK(refusal([]() -> std::string { ::_exit(3); }) ==
        "the oracle: no answer: the process that was asked exited with status 3");
  CHECK(refusal([]() -> std::string { throw std::runtime_error("no such luck"); }) == "the oracle: no such luck");
  CHECK_FALSE(has_children());
}

}  // namespace vime::proc::test
