// What a file can be instead of a spec: each one clear sentence.
#include <sys/stat.h>

#include "base/files.hpp"
#include "spec/source.hpp"
#include "spec_text.hpp"

using namespace vime::spec;

TEST_CASE("an empty file, a list and a bare text are one sentence each") {
  for (const std::string empty : {"", "\n\n", "# nothing\n", "---\n", "---\n...\n", "\xEF\xBB\xBF"}) {
    CAPTURE(empty);
    CHECK(refusal(empty) ==
          "s.yaml:1:1: the file is empty; expected the sections of an experiment spec (model, data, ...)");
  }
  CHECK(refusal("- a\n- b\n") == "s.yaml:1:1: expected sections (\"model:\", \"data:\", ...), found a list");
  CHECK(refusal("\nhello") == "s.yaml:2:1: expected sections (\"model:\", \"data:\", ...), found \"hello\"");
}

TEST_CASE("duplicate keys are refused with both lines, sections included") {
  CHECK(refusal("seed: 1\nname: x\nseed: 2\n") == "s.yaml:3:1: duplicate key \"seed\", given first in line 1");
  CHECK(refusal("trainer:\n  lr: 1\n  lr: 2\n") == "s.yaml:3:3: duplicate key \"lr\", given first in line 2");
  CHECK(contains(refusal("trainer: {lr: 1}\nseed: 1\ntrainer: {clip_grad: 2}\n"),
                 "s.yaml:3:1: duplicate key \"trainer\""));
  CHECK(contains(refusal("trainer: {lr: 1, \"lr\": 1}\n"), "s.yaml:1:18: duplicate key"));
}

TEST_CASE("tabs cannot indent, and may stand elsewhere") {
  CHECK(refusal("trainer:\n\tlr: 1\n") == "s.yaml:2:1: a tab in the indentation; YAML is indented with spaces");
  CHECK(refusal("trainer:\n  \tlr: 1\n") == "s.yaml:2:3: a tab in the indentation; YAML is indented with spaces");
  CHECK(refusal(kSound + "seed: 5\t# after a tab\n\t# a comment\n\t\n").empty());
}

TEST_CASE("CRLF, a lone CR and a byte order mark are accepted") {
  const ExperimentSpec plain = parse(kSound, "s.yaml");
  std::string crlf, cr;
  for (const char c : kSound) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
    cr += c == '\n' ? '\r' : c;
  }
  CHECK(parse(crlf, "s.yaml") == plain);
  CHECK(parse(cr, "s.yaml") == plain);
  CHECK(parse("\xEF\xBB\xBF" + crlf, "s.yaml") == plain);
  CHECK(contains(refusal("\xEF\xBB\xBFseed: x\r\n"), "s.yaml:1:7: \"seed\" must be"));
}

TEST_CASE("two documents are refused at the second") {
  CHECK(refusal(kSound + "---\nseed: 2\n") == "s.yaml:6:1: a second YAML document begins here; a spec is one document");
  CHECK(refusal("---\n" + kSound).empty());
  CHECK(refusal("%YAML 1.2\n---\n" + kSound + "...\n").empty());
}

TEST_CASE("anchors, aliases, merge keys and tags are refused before anything is expanded") {
  const std::string sentence = "anchors and aliases (& and *) are not part of a spec; write the value out";
  CHECK(refusal("seed: &a 1\nname: *a\n") == "s.yaml:1:7: " + sentence);
  CHECK(refusal("seed: *a\n") == "s.yaml:1:7: " + sentence);
  CHECK(contains(refusal("trainer: &t {lr: 1}\n"), sentence));
  CHECK(contains(refusal("<<: {seed: 1}\n"), "merge keys (<<) are not part of a spec"));
  CHECK(contains(refusal("seed: !!int 1\n"), "tags ("));
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) bomb += std::string(i > 0 ? ", " : "") + "*" + static_cast<char>(c - 1);
    bomb += "]\n";
  }
  CHECK(contains(refusal(bomb), "s.yaml:1:4: " + sentence));
}

TEST_CASE("text that is not UTF-8 is refused with the place of the first wrong byte") {
  CHECK(refusal("name: \"\xff\"\n") == "s.yaml:1:8: the text is not UTF-8; save the file as UTF-8");
  CHECK(contains(refusal("name: \xc3\n"), "s.yaml:1:7: the text is not UTF-8"));          // cut short
  CHECK(contains(refusal("name: \xc0\xaf\n"), "s.yaml:1:7: the text is not UTF-8"));      // overlong
  CHECK(contains(refusal("name: \xed\xa0\x80\n"), "s.yaml:1:7: the text is not UTF-8"));  // surrogate
  CHECK(contains(refusal("\xff\xfes\0e\0"), "s.yaml:1:1: the text is not UTF-8"));        // UTF-16
  CHECK(contains(refusal(std::string("seed: 1\0\n", 9)), "s.yaml:1:8: control character 0"));
  // Columns count characters, not bytes.
  CHECK(contains(refusal("\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\": 1\n"), "s.yaml:1:1: unknown key"));
  CHECK(contains(refusal("{\"\xc3\xa4\": 1, seed: x}\n"), "s.yaml:1:16: \"seed\" must be"));
}

TEST_CASE("deep nesting ends at once, whatever its size") {
  const std::string sentence = "nested deeper than 8 levels";
  CHECK(contains(refusal("a: " + std::string(1000, '[') + std::string(1000, ']')), sentence));
  CHECK(contains(refusal("a: " + std::string(1000000, '[')), "is a bracket left open?"));
  CHECK(contains(refusal(std::string(1000000, '[')), "is a bracket left open?"));
  std::string mapping;
  for (int i = 0; i < 1000; ++i) mapping += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  CHECK(contains(refusal(mapping), sentence));
  CHECK(contains(refusal("a: " + std::string(100000, '{')), "s.yaml:1:"));
}

TEST_CASE("broken YAML is refused with its place") {
  const std::string broken[] = {"a: b: c\n",    "{seed: 1\n", "seed: [1, 2\n",  "seed: @x\n",    "a:\n  b: 1\n c: 2\n",
                                "? [a]\n: 1\n", ": 1\n",      "seed: 1\n- 2\n", "seed: 'x' y\n", "seed: \"\\q\"\n"};
  for (const std::string& text : broken) {
    CAPTURE(text);
    CHECK(refusal(text).rfind("s.yaml:", 0) == 0);
  }
  CHECK(contains(refusal("seed: [1, 2\n"), "a \"[\" is not closed"));
}

TEST_CASE("a quote that is never closed is refused where it begins") {
  for (const std::string open : {"'it''s\n", "\"x\nseed: 2\n", "'x\n", "\"a\\\"\n", "\"a\\\\\\\"\n"}) {
    CAPTURE(open);
    CHECK(refusal("seed: 1\nname: " + open) == "s.yaml:2:7: the quote that begins here is never closed");
  }
  for (const std::string closed :
       {"'it''s'", "\"x\"", "'x'", "\"x\" # \"", "'x' # it's", "\"\\x78\"", "|\n  x", ">-\n  x"}) {
    CAPTURE(closed);
    CHECK_FALSE(contains(refusal(kSound + "name: " + closed + "\n"), "never closed"));
  }
}

TEST_CASE("a section with all its keys commented out is an empty section; other values are refused") {
  CHECK(refusal(kSound + "trainer:\n  # lr: 1\n").empty());
  CHECK(contains(refusal(kSound + "trainer: 3\n"), "s.yaml:6:10: \"trainer\" must be a section of keys"));
  CHECK(contains(refusal(kSound + "trainer: [lr]\n"), "found a list"));
}

TEST_CASE("files that cannot be a spec are refused by name") {
  const vime::TempDir folder;
  const auto load_refusal = [](const vime::fs::path& file) -> std::string {
    try {
      load(file);
    } catch (const vime::Error& error) {
      CHECK(error.kind() == vime::ErrorKind::refused);
      return error.message();
    }
    return "";
  };
  const std::string missing = (folder.path() / "none.yaml").string();
  CHECK(load_refusal(missing) == missing + ": No such file or directory");
  CHECK(load_refusal(folder.path()) == folder.path().string() + ": is a folder; expected a YAML experiment spec");
  CHECK(contains(load_refusal("/dev/zero"), "/dev/zero: is larger than 1.00 MiB"));
  const vime::fs::path file = folder.path() / "big.yaml";
  vime::write_file_atomic(file, kSound + "# " + std::string(kMaxSpecBytes, 'x') + "\n");
  CHECK(contains(load_refusal(file), "is larger than 1.00 MiB"));
  vime::write_file_atomic(file, kSound);
  CHECK(load_refusal(file).empty());
  vime::write_file_atomic(file, "seed: x\n");
  CHECK(contains(load_refusal(file), file.string() + ":1:7: \"seed\" must be"));
}

TEST_CASE("long keys and values are cut in errors, and control characters escaped") {
  CHECK(refusal(kSound + std::string(500, 'k') + ": 1\n").size() < 500);
  CHECK(refusal_with({"seed=" + std::string(5000, 'v')}).size() < 500);
  CHECK_FALSE(contains(refusal(kSound + "\"\\e[2J\": 1\n"), "\x1b"));
  CHECK(contains(refusal(kSound + "\"\\e[2J\": 1\n"), "\\u001b[2J"));
}
