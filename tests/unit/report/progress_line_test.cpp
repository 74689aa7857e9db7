#include "report/progress_line.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"

using namespace vime;
using namespace vime::report;

namespace {

const std::string kClear = "\r\x1b[K";

struct Screen {
  std::string text;
  ProgressLine::Write writer() {
    return [this](std::string_view part) { text += part; };
  }
};

SteadyClock::time_point at(int ms) {
  return SteadyClock::time_point{} + milliseconds(ms);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace

TEST_CASE("on a terminal the line is overprinted and left standing at the end") {
  Screen screen;
  ProgressLine line({true, 80, milliseconds(2000)}, screen.writer());
  line.update("step 1", at(0));
  line.update("step 2", at(1));
  line.finish();
  line.finish();
  CHECK(screen.text == kClear + "step 1" + kClear + "step 2\n");
}

TEST_CASE("on a terminal other lines go above the progress line") {
  Screen screen;
  ProgressLine line({true, 80, milliseconds(2000)}, screen.writer());
  line.print("early\n");
  line.update("step 1", at(0));
  line.print("note\n");
  line.finish();
  line.print("late\n");
  CHECK(screen.text == "early\n" + kClear + "step 1" + kClear + "note\n" + kClear + "step 1\nlate\n");
}

TEST_CASE("a line longer than the terminal is cut at a character") {
  Screen screen;
  ProgressLine line({true, 5, milliseconds(2000)}, screen.writer());
  line.update("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", at(0));
  CHECK(screen.text == kClear + "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
}

TEST_CASE("elsewhere plain lines appear at most once per interval and the last is never lost") {
  Screen screen;
  ProgressLine line({false, 80, milliseconds(2000)}, screen.writer());
  line.update("step 1", at(0));
  line.update("step 2", at(1999));
  line.update("step 3", at(2000));
  line.print("note\n");
  line.update("step 4", at(2500));
  line.finish();
  line.finish();
  CHECK(screen.text == "step 1\nstep 3\nnote\nstep 4\n");
}

TEST_CASE("elsewhere a last line that was written is not repeated") {
  Screen screen;
  ProgressLine line({false, 80, milliseconds(2000)}, screen.writer());
  line.update("step 1", at(0));
  line.finish();
  CHECK(screen.text == "step 1\n");
}

TEST_CASE("a progress line that ends leaves the cursor on a fresh line") {
  Screen screen;
  { ProgressLine({true, 80, milliseconds(2000)}, screen.writer()).update("step 1", at(0)); }
  CHECK(screen.text == kClear + "step 1\n");
}

TEST_CASE("log lines pass through an attached progress line without tearing it") {
  Screen screen;
  ProgressLine line({true, 80, milliseconds(2000)}, screen.writer());
  line.attach_log();
  line.update("step 1", at(0));
  log::info("loop", "hello");
  line.detach_log();
  CHECK(count(screen.text, "loop: hello\n" + kClear + "step 1") == 1);
  CHECK(screen.text.find(kClear + "step 1" + kClear) == 0);
}

TEST_CASE("only one progress line has the log at a time") {
  Screen screen;
  ProgressLine first({true, 80, milliseconds(2000)}, screen.writer());
  ProgressLine second({true, 80, milliseconds(2000)}, screen.writer());
  first.attach_log();
  CHECK_THROWS_AS(second.attach_log(), Error);
  second.detach_log();
  first.detach_log();
  CHECK_NOTHROW(second.attach_log());
}

TEST_CASE("threads that log and update at once never tear a line") {
  Screen screen;
  {
    ProgressLine line({true, 80, milliseconds(2000)}, screen.writer());
    line.attach_log();
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 200; ++i) log::info("loop", "abcdefghij");
      });
    }
    for (int i = 0; i < 200; ++i) line.update("step", at(i));
    threads.clear();
  }
  CHECK(count(screen.text, "loop: abcdefghij\n") == 800);
}
