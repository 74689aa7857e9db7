#include "data/prompts.hpp"

#include <set>

#include "base/random.hpp"
#include "files.hpp"

using namespace vime;
using namespace vime::data;

namespace {

LoadOptions from(const std::string& source) {
  LoadOptions options;
  options.prompt_data = {source};
  return options;
}

// What one line is refused with, without the place.
std::string line_refusal(const Folder& folder, const std::string& line, LoadOptions options = {}) {
  options.prompt_data = {folder.write("line.jsonl", line + "\n")};
  options.max_bad_lines = 0;
  const std::string text = refusal([&] { load_prompts(options); });
  const std::string before = "data.prompt_data: " + options.prompt_data[0] + ":1: ";
  if (text.empty()) return "";
  CHECK(text.rfind(before, 0) == 0);
  const size_t hint = text.find(" (data.max_bad_lines");
  CHECK(hint != std::string::npos);
  return text.substr(before.size(), hint - before.size());
}

std::string numbered(int64_t count, const std::string& end = "\n") {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += R"({"prompt": "p)" + std::to_string(i) + R"(", "label": ")" + std::to_string(i) + "\"}" + end;
  }
  return text;
}

std::vector<std::string> texts(const PromptSet& set) {
  std::vector<std::string> result;
  for (const Prompt& prompt : set.prompts) result.push_back(prompt.text);
  return result;
}

uint64_t fingerprint(const LoadOptions& options) {
  return load_prompts(options).fingerprint;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a line gives prompt, label, metadata and reward type") {
  const Folder folder;
  const PromptSet set = load_prompts(from(
      folder.write("a.jsonl",
                   "{\"prompt\": \"1+1\\u003d\", \"label\": \"2\", \"metadata\": {\"kind\": \"sum\", \"n\": 1.50}, "
                   "\"reward_type\": \"math\", \"other\": [1]}\n"
                   "\n"
                   "{\"label\": \"x\", \"prompt\": \"y\"}")));
  REQUIRE(set.prompts.size() == 2);
  Prompt first;
  first.text = "1+1=";
  first.label = "2";
  first.metadata = R"({"kind": "sum", "n": 1.50})";
  first.reward_type = "math";
  first.line = 1;
  CHECK(set.prompts[0] == first);
  Prompt second;
  second.id = 1;
  second.text = "y";
  second.label = "x";
  second.line = 3;
  CHECK(set.prompts[1] == second);
  CHECK(set.lines == 2);
  CHECK(set.empty_lines == 1);
  CHECK(set.bad_lines == 0);
}

TEST_CASE("the keys can be named, and labels left out") {
  const Folder folder;
  LoadOptions options = from(folder.write("a.jsonl", R"({"q": "x", "a": "y", "m": {"k": 1}, "r": "t", "label": 3})"));
  options.input_key = "q";
  options.label_key = "a";
  options.metadata_key = "m";
  options.reward_key = "r";
  Prompt prompt = load_prompts(options).prompts.at(0);
  CHECK(prompt.text == "x");
  CHECK(prompt.label == "y");
  CHECK(prompt.metadata == R"({"k": 1})");
  CHECK(prompt.reward_type == "t");
  options.label_key = "";
  CHECK(load_prompts(options).prompts.at(0).label.empty());
}

TEST_CASE("a label that is no text keeps the spelling it was written with") {
  const Folder folder;
  for (const std::string label : {"4", "1.50", "1e3", "true", "[1, 2]", R"({"a": "b"})", "12345678901234567890123"}) {
    const PromptSet set = load_prompts(from(folder.write("a.jsonl", R"({"prompt": "x", "label": )" + label + "}")));
    CHECK(set.prompts.at(0).label == label);
  }
  CHECK(load_prompts(from(folder.write("a.jsonl", R"({"prompt": "x", "label": ""})"))).prompts.at(0).label.empty());
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": null})") == "\"label\": expected a label, found null");
}

TEST_CASE("a line that cannot be used says what was expected and what was found") {
  const Folder folder;
  CHECK(line_refusal(folder, R"({"promt": "x", "label": "y"})") ==
        "the key \"prompt\" is missing (did you mean \"promt\"?)");
  CHECK(line_refusal(folder, R"({"prompt": "x", "zz": "y"})") ==
        "the key \"label\" is missing; found \"prompt\", \"zz\"");
  CHECK(line_refusal(folder, "{}") == "the key \"prompt\" is missing; the object is empty");
  CHECK(line_refusal(folder, R"({"prompt": 3, "label": "y"})") ==
        "\"prompt\": expected a text or a list of chat messages, found the number 3");
  CHECK(line_refusal(folder, R"({"prompt": null, "label": "y"})") ==
        "\"prompt\": expected a text or a list of chat messages, found null");
  CHECK(line_refusal(folder, R"({"prompt": "", "label": "y"})") == "\"prompt\": expected a text, found an empty one");
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y", "metadata": "z"})") ==
        "\"metadata\": expected an object, found the text \"z\"");
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y", "reward_type": 1})") ==
        "\"reward_type\": expected a text, found the number 1");
  CHECK(line_refusal(folder, R"({"prompt": "x", "prompt": "z", "label": "y"})") ==
        "duplicate key \"prompt\" (column 17)");
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": NaN})") ==
        "not JSON: expected a value, found NaN (column 26)");
  CHECK(line_refusal(folder, "{\"prompt\": \"\xFF\", \"label\": 1}") == "not UTF-8 (column 13)");
  CHECK(line_refusal(folder, "[]") == "not JSON: expected a JSON object, found \"[\" (column 1)");
  CHECK(line_refusal(folder, std::string("{\"prompt\": \"a\0b\", \"label\": 1}", 29)) ==
        "not JSON: a control character in a text; expected an escape such as \\n (column 14)");
  CHECK(contains(line_refusal(folder, "{\"prompt\": \"a\", \"label\": 1}\r{\"prompt\": \"b\", \"label\": 1}"),
                 "a lone CR does not end it"));
  LoadOptions narrow;
  narrow.max_line_bytes = 20;
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y"})", narrow) ==
        "expected a line of at most 20 bytes (max_line_bytes), found a longer one");
}

TEST_CASE("line separators inside a text do not end a line") {
  const Folder folder;
  const PromptSet set = load_prompts(from(folder.write("a.jsonl",
                                                       "{\"prompt\": \"a\xE2\x80\xA8"
                                                       "b\xC2\x85"
                                                       "c\", \"label\": \"\\r\\u2028\"}\r\n")));
  REQUIRE(set.prompts.size() == 1);
  CHECK(set.prompts[0].text ==
        "a\xE2\x80\xA8"
        "b\xC2\x85"
        "c");
  CHECK(set.prompts[0].label == "\r\xE2\x80\xA8");
}

TEST_CASE("errors name file and line, empty lines counted in") {
  const Folder folder;
  const std::string path = folder.write("a.jsonl", "\n" + numbered(3) + "  \n{\n");
  CHECK(contains(refusal([&] { load_prompts(from(path)); }), path + ":6: not JSON"));
  const std::string zipped = folder.write("a.jsonl.gz", packed(numbered(3, "\r\n") + "\r\n{\r\n"));
  CHECK(contains(refusal([&] { load_prompts(from(zipped)); }), zipped + ":5: not JSON"));
}

TEST_CASE("bad lines up to the limit are left out, counted and explained") {
  const Folder folder;
  const std::string path = folder.write("a.jsonl", numbered(2) + "{\n" + numbered(1) + "[]\n{}\n");
  LoadOptions options = from(path);
  options.max_bad_lines = 3;
  const PromptSet set = load_prompts(options);
  CHECK(texts(set) == Texts{"p0", "p1", "p0"});
  CHECK(set.prompts[2].id == 3);  // ids count bad lines, so that they do not move when one is mended
  CHECK(set.lines == 6);
  CHECK(set.bad_lines == 3);
  REQUIRE(set.bad_reasons.size() == 3);
  CHECK(set.bad_reasons[0].rfind(path + ":3: not JSON", 0) == 0);
  CHECK(set.bad_reasons[2] == path + ":6: the key \"prompt\" is missing; the object is empty");
  options.max_bad_lines = 2;
  const std::string message = refusal([&] { load_prompts(options); });
  CHECK(contains(message, "data.prompt_data: more than 2 bad lines (data.max_bad_lines), the first of them:\n"));
  CHECK(contains(message, path + ":3: "));
  CHECK(contains(message, path + ":6: "));
  options.max_bad_lines = 0;
  CHECK(contains(refusal([&] { load_prompts(options); }), path + ":3: "));
}

TEST_CASE("of many bad lines the first few are explained") {
  const Folder folder;
  std::string text = numbered(1);
  for (int i = 0; i < 100; ++i) text += "x\n";
  LoadOptions options = from(folder.write("a.jsonl", text));
  options.max_bad_lines = 100;
  const PromptSet set = load_prompts(options);
  CHECK(set.bad_lines == 100);
  CHECK(set.bad_reasons.size() == 5);
}

TEST_CASE("a data set without a prompt is refused with the reason") {
  const Folder folder;
  CHECK(contains(refusal([&] { load_prompts(from(folder.write("a", "\n \n"))); }),
                 "a: the file has no lines; expected one JSON object per line"));
  CHECK(contains(refusal([&] { load_prompts(from(folder.write("b", ""))); }), "b: the file is empty"));
  CHECK(contains(refusal([&] { load_prompts(from(folder.write("c", numbered(4)) + "@[4:9]")); }),
                 "c@[4:9]: the slice selects no line of the file's 4 lines"));
  CHECK(contains(refusal([&] { load_prompts(from(folder.place("none"))); }), "there is no such file"));
  LoadOptions lenient = from(folder.write("d", "x\ny\n"));
  lenient.max_bad_lines = 10;
  CHECK(contains(refusal([&] { load_prompts(lenient); }),
                 "no prompt is left: all 2 lines are bad, the first one: " + folder.place("d") + ":1: not JSON"));
  lenient.what = "eval.prompt_data";
  CHECK(contains(refusal([&] { load_prompts(lenient); }), "eval.prompt_data: no prompt is left"));
}

TEST_CASE("slices count the lines that are not empty, bad ones too") {
  const Folder folder;
  const std::string path = folder.write("a", "\n" + numbered(2) + "\n" + "{\n" + numbered(5));
  const auto selected = [&](const std::string& slice) {
    LoadOptions options = from(path + "@[" + slice + "]");
    options.max_bad_lines = 1;
    return texts(load_prompts(options));
  };
  CHECK(selected("0:2") == Texts{"p0", "p1"});
  CHECK(selected("1:4") == Texts{"p1", "p0"});
  CHECK(selected("-2:") == Texts{"p3", "p4"});
  CHECK(selected(":-5") == Texts{"p0", "p1"});
  CHECK(selected("-3:-1") == Texts{"p2", "p3"});
  CHECK(selected(":").size() == 7);
  // What lies outside is not looked at.
  CHECK(load_prompts(from(path + "@[3:]")).bad_lines == 0);
  CHECK(load_prompts(from(path + "@[3:]")).prompts[0].line == 6);
}

TEST_CASE("several sources are one data set, whose ids go on from source to source") {
  const Folder folder;
  LoadOptions options;
  options.prompt_data = {folder.write("a", numbered(3)) + "@[1:]", "builtin:sort_digits/heldout", "builtin:sort_digits",
                         folder.write("b.gz", packed(numbered(2)))};
  const PromptSet set = load_prompts(options);
  CHECK(set.prompts.size() == 2 + 10000 + 2);
  CHECK(set.prompts[0].id == 0);
  CHECK(set.prompts[1].id == 1);
  CHECK(set.prompts[0].line == 2);
  CHECK(set.prompts[2].id == 2 + 10);  // "0010="
  CHECK(set.prompts[2].source == 1);
  CHECK(set.prompts.back().id == 2 + 20000 + 1);
  CHECK(set.prompts.back().source == 3);
  std::set<int64_t> ids;
  for (const Prompt& prompt : set.prompts) ids.insert(prompt.id);
  CHECK(ids.size() == set.prompts.size());
  CHECK(prompt_place(set.prompts[1], options.prompt_data) == folder.place("a") + ":3");
  CHECK(prompt_place(set.prompts[2], options.prompt_data) == "builtin:sort_digits/heldout (prompt 12)");
  // A built-in set alone has the ids of its own.
  CHECK(load_prompts(from("builtin:sort_digits")).prompts == builtin_prompts("builtin:sort_digits"));
}

TEST_CASE("a reward type may stand in the metadata, and must be known where the known ones are given") {
  const Folder folder;
  const auto type_of = [&](const std::string& line) {
    return load_prompts(from(folder.write("a", line))).prompts.at(0).reward_type;
  };
  CHECK(type_of(R"({"prompt": "x", "label": "y", "metadata": {"rm_type": "math"}})") == "math");
  CHECK(type_of(R"({"prompt": "x", "label": "y", "metadata": {"rm_type": "math"}, "reward_type": "math"})") == "math");
  CHECK(type_of(R"({"prompt": "x", "label": "y", "metadata": {"rm_type": null}, "reward_type": null})").empty());
  CHECK(type_of(R"({"prompt": "x", "label": "y"})").empty());
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y", "metadata": {"rm_type": "a"}, "reward_type": "b"})") ==
        "\"reward_type\" is \"b\", but rm_type of \"metadata\" is \"a\"");
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y", "metadata": {"rm_type": 7}})") ==
        "\"metadata\", \"rm_type\": expected a text, found the number 7");
  LoadOptions options;
  options.reward_types = {"exact_match", "position_match"};
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y", "reward_type": "exact_mach"})", options) ==
        "reward type: expected one of exact_match, position_match, found \"exact_mach\" (did you mean "
        "\"exact_match\"?)");
  CHECK(line_refusal(folder, R"({"prompt": "x", "label": "y", "reward_type": "exact_match"})", options).empty());
}

TEST_CASE("chat messages need a template, which makes their text") {
  const Folder folder;
  const std::string chat = R"([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi", "x": 1}])";
  const std::string line = R"({"prompt": )" + chat + R"(, "label": "y"})";
  CHECK(line_refusal(folder, line) ==
        "\"prompt\": expected a text, found a list; chat messages need data.apply_chat_template: true");
  LoadOptions options = from(folder.write("a", line + "\n" + R"({"prompt": "plain \"text\"", "label": "y"})"));
  options.apply_chat_template = true;
  PromptSet set = load_prompts(options);
  REQUIRE(set.prompts.size() == 2);
  CHECK(set.prompts[0].text.empty());
  CHECK(set.prompts[0].messages == chat);
  CHECK(set.prompts[1].text.empty());
  CHECK(parse_json(set.prompts[1].messages) == parse_json(R"([{"role": "user", "content": "plain \"text\""}])"));
  options.render = [](const Json& messages) {
    std::string text;
    for (const Json& message : messages) text += "<" + message["role"].get<std::string>() + ">";
    return text;
  };
  set = load_prompts(options);
  CHECK(texts(set) == Texts{"<system><user>", "<user>"});
  CHECK(set.prompts[0].messages == chat);
}

TEST_CASE("a template that refuses makes a bad line, one that fails otherwise ends the load") {
  const Folder folder;
  LoadOptions options = from(folder.write("a", numbered(2)));
  options.apply_chat_template = true;
  options.render = [](const Json&) -> std::string { throw Error(ErrorKind::refused, "no role \"user\""); };
  CHECK(contains(refusal([&] { load_prompts(options); }), folder.place("a") + ":1: no role \"user\""));
  options.max_bad_lines = 9;
  CHECK(contains(refusal([&] { load_prompts(options); }), "all 2 lines are bad"));
  options.render = [](const Json&) -> std::string { throw Error(ErrorKind::internal, "broken"); };
  CHECK_THROWS_WITH_AS(load_prompts(options), ("data.prompt_data: " + folder.place("a") + ":1: broken").c_str(), Error);
}

TEST_CASE("chat messages are a list of objects with role and content") {
  const Folder folder;
  LoadOptions options;
  options.apply_chat_template = true;
  const auto fault = [&](const std::string& messages) {
    return line_refusal(folder, R"({"label": 1, "prompt": )" + messages + "}", options);
  };
  CHECK(fault("[]") == "\"prompt\": expected chat messages, found an empty list");
  CHECK(fault(R"(["hi"])") == "\"prompt\", message 1: expected an object with role and content");
  CHECK(fault(R"([{"role": "user", "content": "x"}, {"content": "x"}])") ==
        "\"prompt\", message 2: \"role\" is missing");
  CHECK(fault(R"([{"role": 1, "content": "x"}])") == "\"prompt\", message 1: expected a text in \"role\"");
  CHECK(fault(R"([{"role": "", "content": "x"}])") == "\"prompt\", message 1: expected a text in \"role\"");
  CHECK(fault(R"([{"role": "user"}])") == "\"prompt\", message 1: \"content\" is missing");
  for (const std::string content : {"3", "null", "[]", R"(["x"])", "{}"}) {
    CHECK(fault(R"([{"role": "user", "content": )" + content + "}]") ==
          "\"prompt\", message 1: expected a text or a list of parts in \"content\"");
  }
  CHECK(fault(R"([{"role": "user", "content": [{"type": "text", "text": "x"}]}])").empty());
  CHECK(fault(R"([{"role": "user", "content": ""}])").empty());
}

TEST_CASE("the fingerprint is of the selected lines and their order, not of where and how they lie") {
  const Folder folder;
  const uint64_t plain = fingerprint(from(folder.write("a", numbered(5))));
  CHECK(fingerprint(from(folder.write("b", numbered(5)))) == plain);
  CHECK(fingerprint(from(folder.write("c", packed(numbered(5, "\r\n"))))) == plain);
  CHECK(fingerprint(from(folder.write("d", "\xEF\xBB\xBF\n" + numbered(5) + "\n"))) == plain);
  CHECK(fingerprint(from(folder.write("e", numbered(9)) + "@[:5]")) == plain);
  LoadOptions parts;
  parts.prompt_data = {folder.place("a") + "@[:2]", folder.place("a") + "@[2:]"};
  CHECK(fingerprint(parts) == plain);
  parts.prompt_data = {folder.place("a") + "@[2:]", folder.place("a") + "@[:2]"};
  CHECK(fingerprint(parts) != plain);
  CHECK(fingerprint(from(folder.place("a") + "@[:4]")) != plain);
  std::string other = numbered(5);
  other[other.find("p3")] = 'q';
  CHECK(fingerprint(from(folder.write("f", other))) != plain);
  // What the lines mean is a part of it, what is done about bad ones is not.
  LoadOptions options = from(folder.place("a"));
  options.max_bad_lines = 3;
  options.max_line_bytes = 1000;
  CHECK(fingerprint(options) == plain);
  options.label_key = "";
  CHECK(fingerprint(options) != plain);
  options = from(folder.place("a"));
  options.apply_chat_template = true;
  CHECK(fingerprint(options) != plain);
  CHECK(fingerprint(from("builtin:sort_digits")) != fingerprint(from("builtin:sort_digits/heldout")));
  CHECK(fingerprint(from("builtin:sort_digits")) == fingerprint(from("builtin:sort_digits")));
}

// Saved runs hold it: it may never move.
TEST_CASE("the fingerprint of the same lines is the same for ever") {
  const Folder folder;
  CHECK(fingerprint(from(folder.write("a", numbered(3)))) == 0x6a22d5793677127full);
}

TEST_CASE("whatever the bytes of a file are, the load ends with prompts or a refusal") {
  const Folder folder;
  const std::string pieces[] = {
      "{\"prompt\": \"",  "\", \"label\": ", "}\n",   "\r\n", "\xEF\xBB\xBF", "[[[[", "\\u",  "\\ud800",
      "{\"metadata\": {", "\"rm_type\":",    "null}", "\n",   "1e999",        "\"",   "\xFF", "\r"};
  const std::string zipped = packed(numbered(20));
  int loaded = 0, refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string bytes = i % 3 == 0 ? numbered(3) : i % 3 == 1 ? zipped.substr(0, mix64(i) % (zipped.size() + 9)) : "";
    for (uint64_t k = 0; k < mix_key(i, 1) % (i % 2 == 0 ? 40 : 4); ++k) {
      const uint64_t choice = mix_key(i, k, 2);
      const size_t at = bytes.empty() ? 0 : mix_key(i, k, 3) % (bytes.size() + 1);
      if (choice % 3 == 0) {
        bytes.insert(at, 1, static_cast<char>(choice >> 8));
      } else if (choice % 3 == 1) {
        bytes.insert(at, pieces[(choice >> 8) % std::size(pieces)]);
      } else {
        bytes.erase(at, (choice >> 8) % 4);
      }
    }
    LoadOptions options = from(folder.write("fuzz", bytes) + (i % 5 == 0 ? "@[-3:]" : ""));
    options.max_bad_lines = static_cast<int64_t>(i % 4) * 20;
    options.max_line_bytes = i % 7 == 0 ? 30 : 1 << 20;
    options.apply_chat_template = i % 2 == 0;
    try {
      const PromptSet set = load_prompts(options);
      ++loaded;
      REQUIRE(set.lines == set.bad_lines + static_cast<int64_t>(set.prompts.size()));
      REQUIRE(set.bad_lines <= options.max_bad_lines);
    } catch (const Error& error) {
      ++refused;
      REQUIRE(error.kind() == ErrorKind::refused);
    }
  }
  CHECK(loaded > 300);
  CHECK(refused > 300);
}

TEST_CASE("the shipped word problems are right, short, and no prompt is in both files") {
  std::set<std::string> texts_seen;
  size_t one_digit = 0, all = 0;
  for (const std::string split : {"train", "test"}) {
    const PromptSet set = load_prompts(from(VIME_SOURCE_DIR "/configs/data/word_problems_" + split + ".jsonl"));
    CHECK(set.lines > (split == "train" ? 1100 : 150));
    for (const Prompt& prompt : set.prompts) {
      REQUIRE(prompt.text.size() <= 40);
      std::vector<int> numbers;
      for (const char c : prompt.text) {
        if (c >= '0' && c <= '9') numbers.push_back(c - '0');
      }
      REQUIRE(numbers.size() == 2);
      const bool sum = contains(prompt.text, " gets ");
      REQUIRE(prompt.label == std::to_string(sum ? numbers[0] + numbers[1] : numbers[0] - numbers[1]));
      REQUIRE(contains(prompt.metadata, sum ? "\"add\"" : contains(prompt.text, " loses ") ? "\"take\"" : "\"more\""));
      REQUIRE(texts_seen.insert(prompt.text).second);
      one_digit += prompt.label.size() == 1 ? 1 : 0;
      ++all;
    }
  }
  CHECK(one_digit * 10 > all * 8);
}
