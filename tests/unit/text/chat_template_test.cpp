#include "text/chat_template.hpp"

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "refusal.hpp"

using namespace vime;
using namespace vime::text;

namespace {

std::string rendered(const std::string& source, const Json& variables = Json::object()) {
  return ChatTemplate(source).render(Json::array(), false, variables);
}

std::string refused(const std::string& source, const Json& variables = Json::object()) {
  return refusal([&] { rendered(source, variables); });
}

}  // namespace

TEST_CASE("what lies beyond the subset is refused with its line and its name") {
  CHECK(contains(refused("a\n{% include 'x' %}"), "line 2: {% include %} is not supported"));
  CHECK(contains(refused("{% extends 'x' %}"), "{% extends %}"));
  CHECK(contains(refused("\n\n{{ 1 | urlize }}"), "line 3: the filter \"urlize\" is not supported"));
  // All that there are, of both kinds.
  for (const char* some : {"supported: abs, attr, batch, ", ", tojson, ", ", unique, ", ", wordcount)"}) {
    CHECK(contains(refused("{{ 1 | urlize }}"), some));
  }
  CHECK(contains(refused("{{ 1 is filter }}"), "the test \"filter\" is not supported"));
  CHECK(contains(refused("{{ '%s' % 1 }}"), "\"%\" as a format"));
  CHECK(contains(refused("{{ 'a'.swapcase() }}"), "str.swapcase"));
  CHECK(contains(refused("{{ lipsum() }}"), "the function \"lipsum\" is not supported"));
  CHECK(contains(refused("{% for a in [] recursive %}{% endfor %}"), "recursive"));
  CHECK(contains(refused("{{ f(*[1]) }}"), "arguments unpacked"));
}

TEST_CASE("values cannot be changed by a template") {
  CHECK(contains(refused("{% set a = [] %}{{ a.append(1) }}"), "list.append is not allowed"));
  CHECK(contains(refused("{% set a = {} %}{{ a.update({}) }}"), "dict.update is not allowed"));
  CHECK(contains(refused("{{ ''.__class__ }}"), "__class__"));
}

TEST_CASE("mistakes in a template are refused with their line") {
  CHECK(contains(refused("a\n{{ 1 +"), "line 2"));
  CHECK(contains(refused("{% if true %}"), "{% endif %}"));
  CHECK(contains(refused("{{ 'a }}"), "closing quote"));
  CHECK(contains(refused("{# a"), "comment"));
  CHECK(contains(refused("x{% raw %}"), "endraw"));
  CHECK(contains(refused("{{ (1] }}"), "unexpected \"]\""));
  CHECK(contains(refused("{% break %}"), "outside a loop"));
  CHECK(contains(refused("\n{{ a.b.c }}"), "line 2: 'a' is undefined"));
  CHECK(contains(refused("{{ 1 + 'a' }}"), "unsupported operand types for +: 'int' and 'str'"));
}

TEST_CASE("raise_exception refuses with the template's own words") {
  const ChatTemplate chat_template("\n{{ raise_exception('roles must alternate') }}");
  try {
    chat_template.render(Json::array(), false);
    FAIL("nothing was raised");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.message() == "roles must alternate");
    CHECK(contains(error.hint(), "line 2"));
  }
}

TEST_CASE("templates that would run, grow or nest without end are refused") {
  const std::string round = "{% for a in range(1000) %}";
  CHECK(contains(refused(round + round + round + "{% endfor %}{% endfor %}{% endfor %}"), "more work"));
  CHECK(contains(refused("{% set n = namespace(s='aaaaaaaa') %}" + round + "{% set n.s = n.s ~ n.s %}{% endfor %}"),
                 "64 MiB"));
  CHECK(contains(refused("{% set n = namespace(l=[1]) %}" + round + "{% set n.l = [n.l] %}{% endfor %}"), "nested"));
  CHECK(contains(refused("{% set n = namespace(l=[1]) %}{% for a in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}"
                         "{{ n.l }}"),
                 "more work"));
  CHECK(contains(refused("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}"), "nested deeper"));
  CHECK(contains(refused("{{ 'a' * 100000000 }}"), "64 MiB"));
  CHECK(contains(refused("{{ [1] * 100000000 }}"), "million items"));
  CHECK(contains(refused("{{ range(1000000000) }}"), "longer than 100000"));
  CHECK(contains(refused("{{ 10 ** 100 }}"), "too large"));
  CHECK(contains(refused("{{ 'ab'.replace('', 'x' * 60000000) }}"), "64 MiB"));
  for (const char* part : {"(", "[", "{1:", "-", "not ", "a if ", "a[", "a("}) {
    std::string deep = "{{ ";
    for (int i = 0; i < 10000; ++i) deep += part;
    CHECK(contains(refused(deep + " }}"), "deeper"));
  }
  std::string chain = "{{ a";
  for (int i = 0; i < 10000; ++i) chain += "|string";
  CHECK(contains(refused(chain + " }}"), "deeper"));
  std::string blocks;
  for (int i = 0; i < 10000; ++i) blocks += "{% if 1 %}";
  CHECK(contains(refused(blocks), "deeper"));
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  CHECK(contains(refused("", {{"deep", deep}}), "nested deeper"));
}

TEST_CASE("namespaces and macros that hold themselves leave nothing behind") {
  CHECK(rendered("{% set n = namespace() %}{% set n.me = n %}{% macro m() %}{{ m.name }}{% endmacro %}{{ m() }}") ==
        "m");
}

TEST_CASE("damaged templates are rendered or refused, never worse") {
  const fs::path dir = fs::path(VIME_TEST_DATA) / "templates";
  const Json messages = parse_json(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  const std::string bits[] = {"{%", "%}", "{{", "}}", "-", "'", "\"", "|", "[", "]", "(", ")", "endif", "for", "\xff"};
  int rendered_count = 0;
  int refused_count = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    const char* names[] = {"chatml", "headers", "macro", "thinking"};
    std::string source = read_file(dir / (std::string(names[i % 4]) + ".jinja"));
    for (uint64_t change = 0; change < 1 + i % 3; ++change) {
      const size_t place = mix_key(i, change) % source.size();
      const std::string& bit = bits[mix_key(i, change, 1) % std::size(bits)];
      if (mix_key(i, change, 2) % 2 == 0) {
        source.insert(place, bit);
      } else {
        source.replace(place, mix_key(i, change, 3) % 8, bit);
      }
    }
    const std::string why = refusal([&] { ChatTemplate(source).render(messages, true); });
    ++(why.empty() ? rendered_count : refused_count);
  }
  CHECK(rendered_count > 300);
  CHECK(refused_count > 300);
}

TEST_CASE("tools and documents are none unless they are given") {
  CHECK(rendered("{{ tools is none }}{{ documents is defined }}{{ other is defined }}") == "TrueTrueFalse");
  CHECK(rendered("{{ tools[0] }}", {{"tools", {"x"}}}) == "x");
}

TEST_CASE("strftime_now shows the time that it is given") {
  const auto noon = std::chrono::system_clock::from_time_t(86400 * 365 + 43200);
  const ChatTemplate chat_template("{{ strftime_now('%Y') }}{% if strftime_now is defined %}!{% endif %}");
  CHECK(chat_template.render(Json::array(), false, Json::object(), noon) == "1971!");
}

TEST_CASE("a chat template is found in either of its files") {
  const TempDir dir;
  CHECK(load_chat_template(dir.path()) == nullptr);
  write_file_atomic(dir.path() / "tokenizer_config.json",
                    R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ bos_token }}one"})");
  CHECK(load_chat_template(dir.path())->render(Json::array(), false) == "<s>one");
  write_file_atomic(dir.path() / "tokenizer_config.json",
                    R"({"eos_token": "</s>", "chat_template": [{"name": "rag", "template": "a"},
                        {"name": "default", "template": "two{{ eos_token }}"}]})");
  CHECK(load_chat_template(dir.path())->render(Json::array(), false) == "two</s>");
  write_file_atomic(dir.path() / "chat_template.jinja", "three{{ eos_token }}\n");
  CHECK(load_chat_template(dir.path())->render(Json::array(), false) == "three</s>");
  write_file_atomic(dir.path() / "chat_template.jinja", "{% bad %}");
  CHECK(contains(refusal([&] { load_chat_template(dir.path()); }), "chat_template.jinja"));
}
