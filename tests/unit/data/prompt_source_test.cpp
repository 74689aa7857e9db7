#include "data/prompt_source.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "files.hpp"

using namespace vime;
using namespace vime::data;

namespace {

using Range = std::pair<int64_t, int64_t>;

Range range(const std::string& slice, int64_t count) {
  return line_range(parse_source("x.jsonl@[" + slice + "]"), count);
}

}  // namespace

TEST_CASE("a source is a path, a path with a slice, or a built-in name") {
  const PromptSource plain = parse_source("data/x.jsonl");
  CHECK(plain.path == "data/x.jsonl");
  CHECK_FALSE(plain.first.has_value());
  CHECK_FALSE(plain.last.has_value());
  const PromptSource sliced = parse_source("data/x.jsonl@[3:-7]");
  CHECK(sliced.path == "data/x.jsonl");
  CHECK(sliced.first == 3);
  CHECK(sliced.last == -7);
  CHECK(sliced.counts_from_end());
  CHECK_FALSE(parse_source("x@[2:]").counts_from_end());
  CHECK(parse_source("builtin:sort_digits").builtin);
  CHECK(parse_source("data/builtin:x").path == "data/builtin:x");
  CHECK(parse_source("a@[b]c.jsonl").path == "a@[b]c.jsonl");
  CHECK(parse_source("a@[1:2].jsonl@[:5]").path == "a@[1:2].jsonl");
}

TEST_CASE("slices select what Python's select") {
  // [begin, end) as Python's slice(...).indices(10) gives them; an end before its begin is an empty range.
  CHECK(range(":", 10) == Range{0, 10});
  CHECK(range("2:5", 10) == Range{2, 5});
  CHECK(range("2:", 10) == Range{2, 10});
  CHECK(range(":5", 10) == Range{0, 5});
  CHECK(range("-3:", 10) == Range{7, 10});
  CHECK(range(":-3", 10) == Range{0, 7});
  CHECK(range("-5:-2", 10) == Range{5, 8});
  CHECK(range("-50:3", 10) == Range{0, 3});
  CHECK(range("8:50", 10) == Range{8, 10});
  CHECK(range("50:60", 10) == Range{10, 10});
  CHECK(range("5:2", 10) == Range{5, 5});
  CHECK(range("3:-9", 10) == Range{3, 3});
  CHECK(range("-2:-50", 10) == Range{8, 8});
  CHECK(range("0:0", 0) == Range{0, 0});
  CHECK(line_range(parse_source("x@[4:9]")) == Range{4, 9});
}

TEST_CASE("what looks like a slice and is none is refused") {
  for (const std::string wrong : {"x@[]", "x@[3]", "@[1:2]", "x@[1:2:3]", "x@[a:b]", "x@[1.5:]", "x@[ 1:2]", "x@[1:+2]",
                                  "x@[99999999999999999999:]", "x@[--1:]"}) {
    CAPTURE(wrong);
    CHECK(contains(refusal([&] { parse_source(wrong); }), std::string(wrong) + ": expected a "));
  }
  CHECK(contains(refusal([] { parse_source("builtin:sort_digit"); }), "did you mean \"builtin:sort_digits\"?"));
  CHECK(contains(refusal([] { parse_source("builtin:sort_digits@[0:5]"); }), "expected one of builtin:sort_digits"));
}

TEST_CASE("a file that is missing, a folder, no regular file or empty is refused in a sentence") {
  const Folder folder;
  const auto check = [](const std::string& path) { return refusal([&] { check_source(parse_source(path)); }); };
  CHECK(check(folder.write("good.jsonl", "{}\n")).empty());
  CHECK(check(folder.place("good.jsonl") + "@[0:1]").empty());
  CHECK(check("builtin:sort_digits").empty());
  const std::string missing = folder.place("none.jsonl");
  CHECK(check(missing) == missing + ": there is no such file");
  CHECK(contains(check("no/such.jsonl"),
                 "there is no such file (looked for " + fs::absolute("no/such.jsonl").string() + ")"));
  CHECK(contains(check(folder.place("good.jsonl") + "/x"), "good.jsonl/x: there is no such file"));
  make_directories(folder.place("dir"));
  CHECK(check(folder.place("dir")) == folder.place("dir") + ": is a folder; expected a JSONL file");
  REQUIRE(::mkfifo(folder.place("fifo").c_str(), 0600) == 0);
  CHECK(check(folder.place("fifo")) == folder.place("fifo") + ": is no regular file; expected a JSONL file");
  CHECK(check(folder.write("empty.jsonl", "")) ==
        folder.place("empty.jsonl") + ": the file is empty; expected one JSON object per line");
  if (::geteuid() != 0) {
    ::chmod(folder.write("secret.jsonl", "{}\n").c_str(), 0);
    CHECK(check(folder.place("secret.jsonl")) == folder.place("secret.jsonl") + ": Permission denied");
  }
}

TEST_CASE("an absolute source keeps its slice, and a built-in name stays") {
  CHECK(absolute_source("a/../b.jsonl@[1:]") == (fs::current_path() / "b.jsonl").string() + "@[1:]");
  CHECK(absolute_source("/x/y.jsonl") == "/x/y.jsonl");
  CHECK(absolute_source("builtin:sort_digits") == "builtin:sort_digits");
}
