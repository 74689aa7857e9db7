#include "proc/log_tail.hpp"

#include <fstream>

#include "base/strings.hpp"
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

TEST_CASE("where Python programs end one another, the first exception comes before the last lines") {
  TempDir folder;
  const std::string path = (folder.path() / "a.log").string();
  const auto tail = [&](const Lines& lines) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << join(lines, "\n") << "\n";
    return log_tail(path, 0, 2);
  };
  Lines lines{"(Worker pid=7) ERROR Worker failed",
              "(Worker pid=7) ERROR Traceback (most recent call last):",
              "(Worker pid=7) ERROR   File \"worker.py\", line 9",
              "(Engine pid=6) INFO waiting",
              "(Worker pid=7) ERROR     raise ValueError(",
              "(Worker pid=7) ERROR ValueError: no such backend",
              "(Engine pid=6) Traceback (most recent call last):",
              "(Engine pid=6)   File \"engine.py\", line 1",
              "(Engine pid=6) Exception: see the root cause above",
              "(Server pid=5) ended"};
  CHECK(tail(lines) == Lines{lines[5], "...", lines[8], lines[9]});
  lines.erase(lines.begin(), lines.begin() + 6);  // the exception is among the last lines
  CHECK(tail(lines) == Lines{lines[2], lines[3]});
  CHECK(tail({"Traceback (most recent call last):", "  File", "  the process was killed here", "x", "y"}) ==
        Lines{"x", "y"});
  CHECK(tail({"Traceback (most recent call last):", "  File", "  killed"}) == Lines{"  File", "  killed"});
}

}  // namespace vime::proc::test
