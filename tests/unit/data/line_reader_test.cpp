#include "data/line_reader.hpp"

#include "base/random.hpp"
#include "files.hpp"

using namespace vime;
using namespace vime::data;

namespace {

struct Read {
  std::vector<std::string> lines;
  std::vector<int64_t> too_long;  // their numbers
};

Read read_all(const std::string& path, int64_t max_line_bytes = 1 << 20) {
  LineReader reader(path, max_line_bytes);
  Read read;
  for (std::string_view line; reader.next(line);) {
    read.lines.emplace_back(line);
    CHECK(reader.number() == static_cast<int64_t>(read.lines.size()));
    if (reader.is_too_long()) read.too_long.push_back(reader.number());
  }
  return read;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("LF and CRLF end a line, and nothing else does") {
  const Folder folder;
  const std::string odd = std::string("n\0ul", 4) + "\xE2\x80\xA8sep\xC2\x85nel\x0B\x0C\x1E";
  CHECK(read_all(folder.write("a", "one\ntwo\r\nth\rree\n\n" + odd + "\n")).lines ==
        Lines{"one", "two", "th\rree", "", odd});
  CHECK(read_all(folder.write("b", "a\r\r\nb\rc")).lines == Lines{"a\r", "b\rc"});
  CHECK(read_all(folder.write("c", "a\n\r\n\n")).lines == Lines{"a", "", ""});
}

TEST_CASE("the last line needs no end, and an end makes no further line") {
  const Folder folder;
  CHECK(read_all(folder.write("a", "x\ny")).lines == Lines{"x", "y"});
  CHECK(read_all(folder.write("b", "x\ny\n")).lines == Lines{"x", "y"});
  CHECK(read_all(folder.write("c", "x\r")).lines == Lines{"x\r"});
  CHECK(read_all(folder.write("d", "")).lines.empty());
  CHECK(read_all(folder.write("e", "\n")).lines == Lines{""});
}

TEST_CASE("a byte order mark is left out at the start of the file only") {
  const Folder folder;
  CHECK(read_all(folder.write("a", "\xEF\xBB\xBFx\n\xEF\xBB\xBFy\n")).lines == Lines{"x", "\xEF\xBB\xBFy"});
  CHECK(read_all(folder.write("b", packed("\xEF\xBB\xBFx\n"))).lines == Lines{"x"});
}

TEST_CASE("a line over the limit is told, cut, and the next one is whole") {
  const Folder folder;
  const std::string ten(10, 'x'), eleven(11, 'y');
  const Read read = read_all(folder.write("a", ten + "\n" + eleven + "\n" + ten + "\r\n" + eleven + "\r\nend"), 10);
  CHECK(read.lines == Lines{ten, std::string(10, 'y'), ten, std::string(10, 'y'), "end"});
  CHECK(read.too_long == std::vector<int64_t>{2, 4});
  // One that is longer than a chunk, and one that crosses chunks and is not.
  const std::string huge(5 << 20, 'z'), large(3 << 19, 'w');
  const Read big = read_all(folder.write("b", large + "\n" + huge + "\n" + large), 2 << 20);
  CHECK(big.too_long == std::vector<int64_t>{2});
  REQUIRE(big.lines.size() == 3);
  CHECK(big.lines[0] == large);
  CHECK(big.lines[2] == large);
  // The second line crosses a chunk; the CR behind its first ten bytes is no end of it.
  const Read cut = read_all(folder.write("c", std::string((1 << 20) - 4, 'x') + "\nyyyyyyyyyy\rz\n"), 10);
  CHECK(cut.too_long == std::vector<int64_t>{1, 2});
}

TEST_CASE("lines that cross chunks come out whole, plain and packed, whatever their lengths") {
  const Folder folder;
  Lines lines;
  std::string text;
  for (uint64_t i = 0; text.size() < (5u << 20); ++i) {
    lines.emplace_back(mix64(i) % (i % 50 == 0 ? 300000 : 200), static_cast<char>('a' + i % 26));
    text += lines.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  CHECK(read_all(folder.write("plain", text)).lines == lines);
  CHECK(read_all(folder.write("packed", packed(text))).lines == lines);
  CHECK(read_all(folder.write("parts", packed(text.substr(0, 999999)) + packed("") + packed(text.substr(999999))))
            .lines == lines);
}

TEST_CASE("gzip is told by its bytes, and members follow each other") {
  const Folder folder;
  CHECK(read_all(folder.write("named.txt", packed("a\nb\n"))).lines == Lines{"a", "b"});
  CHECK(read_all(folder.write("plain.gz", "a\n")).lines == Lines{"a"});
  CHECK(read_all(folder.write("two", packed("a\nb") + packed("c\nd\n"))).lines == Lines{"a", "bc", "d"});
  CHECK(read_all(folder.write("none", packed(""))).lines.empty());
}

TEST_CASE("gzip data that is cut off, damaged or followed by something else is refused") {
  const Folder folder;
  std::string text;
  for (uint64_t i = 0; i < 20000; ++i) text += std::to_string(mix64(i)) + "\n";
  const std::string whole = packed(text);
  for (const size_t size : {size_t{2}, size_t{3}, size_t{12}, whole.size() / 2, whole.size() - 8, whole.size() - 1}) {
    CAPTURE(size);
    const std::string path = folder.write("cut", whole.substr(0, size));
    CHECK(refusal([&] { read_all(path); }) == path + ": the gzip data ends early; the file was cut off");
  }
  for (const std::string& garbage : {std::string("x"), std::string(1, '\0'), std::string("{}\n")}) {
    const std::string path = folder.write("garbage", whole + garbage);
    CHECK(refusal([&] { read_all(path); }) ==
          path + ": something that is no gzip data follows the end of the gzip data");
  }
  CHECK(contains(refusal([&] { read_all(folder.write("g", whole + "\x1F\x8Bgarbage garbage")); }), "is damaged"));
  int noticed = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    std::string wrong = whole;
    wrong[10 + mix64(i) % (wrong.size() - 10)] ^= static_cast<char>(1 << i % 8);
    noticed += refusal([&] { read_all(folder.write("flipped", wrong)); }).empty() ? 0 : 1;
  }
  CHECK(noticed == 50);
}

TEST_CASE("files of other packed kinds are refused by name") {
  const Folder folder;
  CHECK(contains(refusal([&] { read_all(folder.write("p", "PAR1\x15\x04")); }),
                 "is a Parquet file; expected JSON lines, plain or gzip"));
  CHECK(contains(refusal([&] { read_all(folder.write("z", "\x28\xB5\x2F\xFD....")); }), "is a Zstandard file"));
  CHECK(contains(refusal([&] { read_all(folder.place("missing")); }), "No such file or directory"));
}
