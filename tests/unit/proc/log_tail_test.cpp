#include "proc/log_tail.hpp"

#include <fstream>

#include "fixture.hpp"

namespace vime::proc::test {

using Lines = std::vector<std::string>;

TEST_CASE("a tail is the last lines, with or without a newline at the end") {
  TempDir folder;
  const std::string path = (folder.path() / "a.log").string();
  const auto tail = [&](const std::string& content, int64_t from = 0) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    return log_tail(path, from, 2);
  };
  CHECK(tail("") == Lines{});
  CHECK(tail("one") == Lines{"one"});
  CHECK(tail("one\ntwo\nthree\n") == Lines{"two", "three"});
  CHECK(tail("one\ntwo\nthree") == Lines{"two", "three"});
  CHECK(tail("one\r\ntwo\r\n") == Lines{"one", "two"});
  CHECK(tail("one\n\n") == Lines{"one", ""});
  CHECK(tail("one\ntwo\n", 4) == Lines{"two"});
  CHECK(tail("one\ntwo\n", 8) == Lines{});
  CHECK(tail("one\n", 100) == Lines{"one"});  // truncated since
  CHECK(tail(std::string(5000, 'x')) == Lines{std::string(1000, 'x') + "..."});
  CHECK(log_tail("/nowhere/a.log", 0, 2) == Lines{});
}

TEST_CASE("of a huge log only the end is read, and no line is shown without its beginning") {
  TempDir folder;
  const std::string path = (folder.path() / "a.log").string();
  std::ofstream(path) << "first\n";
  fs::resize_file(path, int64_t(1) << 40);  // a hole of a terabyte: reading it all would not end
  std::ofstream(path, std::ios::app) << "\nbefore last\nlast\n";
  CHECK(log_tail(path, 0, 2) == Lines{"before last", "last"});
  const Lines three = log_tail(path, 0, 3);
  CHECK(three == Lines{"before last", "last"});
}

}  // namespace vime::proc::test
