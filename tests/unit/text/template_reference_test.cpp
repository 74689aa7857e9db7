// Texts that transformers rendered from four templates.
#include <doctest/doctest.h>

#include <fstream>
#include <optional>

#include "base/error.hpp"
#include "text/chat_template.hpp"

using namespace vime;
using namespace vime::text;

namespace {

void check_template(const std::string& name) {
  const fs::path dir = fs::path(VIME_TEST_DATA) / "templates";
  const ChatTemplate chat_template(read_file(dir / (name + ".jinja")), {{"bos_token", "<|endoftext|>"}});
  std::ifstream cases(dir / (name + ".jsonl"));
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const Json expected = parse_json(line, "case");
    CAPTURE(line);
    const bool prompt = expected["add_generation_prompt"].get<bool>();
    if (expected.contains("error")) {
      try {
        chat_template.render(expected["messages"], prompt, expected["kwargs"]);
        FAIL_CHECK("rendered where the template raises");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::refused);
        CHECK(error.message() == expected["error"].get<std::string>());
      }
      continue;
    }
    const std::string text = chat_template.render(expected["messages"], prompt, expected["kwargs"]);
    CHECK(text == expected["text"].get<std::string>());
  }
  CHECK(count >= 120);
}

// The text, or nullopt where it is refused.
std::optional<std::string> rendered(const std::string& source, const Json& context) {
  try {
    const ChatTemplate chat_template(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    return chat_template.render(context["messages"], true, context["variables"]);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("a template of the ChatML kind gives the texts of transformers") {
  check_template("chatml");
}

TEST_CASE("a template with headers, defaults and refusals gives the texts of transformers") {
  check_template("headers");
}

TEST_CASE("a template with a macro and filters gives the texts of transformers") {
  check_template("macro");
}

TEST_CASE("a template with namespaces, slices and string methods gives the texts of transformers") {
  check_template("thinking");
}

// Operators, filters, tests, methods, white space control, loops, macros; where transformers raises, vime refuses.
TEST_CASE("random expressions and statements give the texts of transformers") {
  std::ifstream lines(fs::path(VIME_TEST_DATA) / "templates" / "variety.jsonl");
  std::string line;
  REQUIRE(std::getline(lines, line));
  const Json context = parse_json(line, "context");
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    const Json expected = parse_json(line, "case");
    CAPTURE(line);
    const auto text = rendered(expected["template"].get<std::string>(), context);
    CHECK(text.has_value() == expected.contains("text"));
    if (text && expected.contains("text")) CHECK(*text == expected["text"].get<std::string>());
  }
  CHECK(count == 700);
}
