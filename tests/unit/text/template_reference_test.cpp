// Texts that transformers rendered from four templates.
#include <doctest/doctest.h>

#include <fstream>

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
