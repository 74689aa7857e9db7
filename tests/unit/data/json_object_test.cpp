#include "data/json_object.hpp"

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "base/random.hpp"

using namespace vime;
using namespace vime::data;

namespace {

std::string fault(const std::string& text) {
  std::vector<JsonMember> members;
  return read_json_object(text, members);
}

// Objects with every kind of value, to be damaged.
const std::string kSeeds[] = {
    R"({"a": "x\n\u00e4\ud83d\ude00", "b": [1, -2.5e3, 0.0, true, false, null], "c": {"d": {}, "e": [[], [{}]]}})",
    R"({"prompt":"2+2=","label":4,"metadata":{"kind":"sum","n":[1,2]}})",
    "  { \"k\" :\t1 , \"l\" : \"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\" } ",
    R"({"n": 1e308, "m": 1e-400, "o": 123456789012345678901234567890, "p": -0})",
};

std::string damaged(std::string text, uint64_t key) {
  static const std::string bytes = "{}[]\",:\\u0019eE+-. \t\r\n/ntfNI\xC3\xFF\x80";
  for (uint64_t i = 0; i <= mix_key(key, 0) % 3; ++i) {
    const size_t at = mix_key(key, i, 1) % text.size();
    const char byte =
        mix_key(key, i, 2) % 4 == 0 ? static_cast<char>(mix_key(key, i, 3)) : bytes[mix_key(key, i, 4) % bytes.size()];
    switch (mix_key(key, i, 5) % 3) {
      case 0:
        text[at] = byte;
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text.erase(at, 1 + mix_key(key, i, 6) % 4);
    }
    if (text.empty()) text = "{";
  }
  return text;
}

// Whether another parser takes the text for an object without a key given twice.
bool reference_accepts(const std::string& text) {
  std::vector<std::vector<std::string>> keys;
  bool twice = false;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      for (const std::string& key : keys.back()) twice = twice || key == value.get<std::string>();
      keys.back().push_back(value.get<std::string>());
    }
    return true;
  };
  try {
    return Json::parse(text, watch).is_object() && !twice;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace

TEST_CASE("members come in order, their values as they were written") {
  std::vector<JsonMember> members;
  REQUIRE(
      read_json_object(R"( {"a\u0062" : "x\"y", "n":1.50, "l":[1, 2], "o":{"p":null},"z":null} )", members).empty());
  REQUIRE(members.size() == 5);
  CHECK(members[0].key == "ab");
  CHECK(members[0].value == R"("x\"y")");
  CHECK(json_text(members[0].value) == "x\"y");
  CHECK(members[1].value == "1.50");
  CHECK(members[2].value == "[1, 2]");
  CHECK(members[3].value == R"({"p":null})");
  CHECK(members[4].is_null());
  REQUIRE(read_json_object("{}", members).empty());
  CHECK(members.empty());
}

TEST_CASE("escapes become what they stand for") {
  CHECK(json_text(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(json_text(R"("\u0041\u00e4\u20AC\ud83d\ude00")") == "A\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(json_text(R"("a\u0000b")") == std::string("a\0b", 3));
  CHECK(json_text(R"("")").empty());
}

TEST_CASE("what is no JSON object is refused with what was expected and the column in characters") {
  CHECK(fault("") == "not JSON: expected a JSON object, found the end of the line (column 1)");
  CHECK(fault("[1]") == "not JSON: expected a JSON object, found \"[\" (column 1)");
  CHECK(fault(R"({"a": })") == "not JSON: expected a value, found \"}\" (column 7)");
  CHECK(fault(R"({"a": 1 "b": 2})") == "not JSON: expected \",\" or \"}\", found \"\\\"\" (column 9)");
  CHECK(fault("{\"\xC3\xA4\": x}") == "not JSON: expected a value, found \"x\" (column 7)");
  CHECK(fault(R"({a: 1})") == "not JSON: expected a key in quotes, found \"a\" (column 2)");
  CHECK(fault(R"({"a": 1,})") == "not JSON: expected a key in quotes, found \"}\" (column 9)");
  CHECK(fault(R"({"a")") == "not JSON: expected \":\", found the end of the line (column 5)");
  CHECK(fault(R"({"a": "x)") == "not JSON: a quote is not closed (column 9)");
  CHECK(fault("{\"a\": \"x\ty\"}") ==
        "not JSON: a control character in a text; expected an escape such as \\n (column 9)");
  CHECK(fault(R"({"a": 1} {"a": 2})") == "not JSON: expected the end of the line, found \"{\" (column 10)");
  CHECK(fault("{\"a\": 1}\r{\"a\": 2}").find("a lone CR does not end it") != std::string::npos);
  CHECK(fault(R"({"a": 01})") == "not JSON: a number with a leading zero (column 8)");
  CHECK(fault(R"({"a": "\x"})").find("expected an escape") != std::string::npos);
}

TEST_CASE("NaN, infinities and numbers beyond a double are errors") {
  CHECK(fault(R"({"a": NaN})") == "not JSON: expected a value, found NaN (column 7)");
  CHECK(fault(R"({"a": Infinity})") == "not JSON: expected a value, found Infinity (column 7)");
  CHECK(fault(R"({"a": -Infinity})") == "not JSON: expected a digit, found \"I\" (column 8)");
  CHECK(fault(R"({"a": 1e999})") == "not JSON: a number beyond the range of a double (column 7)");
  CHECK(fault("{\"a\": 1" + std::string(400, '0') + "}") ==
        "not JSON: a number beyond the range of a double (column 7)");
  CHECK(fault(R"({"a": 1e-999, "b": 1.7e308})").empty());
}

TEST_CASE("a key given twice is an error at any depth, whatever its spelling") {
  CHECK(fault(R"({"a": 1, "b": 2, "a": 3})") == "duplicate key \"a\" (column 18)");
  CHECK(fault(R"({"a": {"b": [{"c": 1, "\u0063": 2}]}})") == "duplicate key \"c\" (column 23)");
  CHECK(fault(R"({"a": {"a": 1}, "b": {"a": 1}})").empty());
}

TEST_CASE("text that is not UTF-8 is refused with its column") {
  CHECK(fault("{\"a\": \"\xC3\xA4\xFF\"}") == "not UTF-8 (column 9)");
  CHECK(fault("{\"a\": \"\xED\xA0\x80\"}") == "not UTF-8 (column 8)");
  CHECK(fault("\xFF\xFE{\0") == "not UTF-8 (column 1)");
  CHECK(fault(R"({"a": "\ud800"})").find("half of a surrogate pair") != std::string::npos);
  CHECK(fault(R"({"a": "\udc00\ud800"})").find("half of a surrogate pair") != std::string::npos);
}

TEST_CASE("nesting ends at a bound, whatever the size of the line") {
  const auto nested = [](int levels) {
    return "{\"a\": " + std::string(static_cast<size_t>(levels), '[') + std::string(static_cast<size_t>(levels), ']') +
           "}";
  };
  CHECK(fault(nested(kMaxJsonDepth - 1)).empty());
  CHECK(fault(nested(kMaxJsonDepth)) == "nested deeper than 64 levels");
  CHECK(fault(nested(1000000)) == "nested deeper than 64 levels");
}

TEST_CASE("another parser agrees on what is JSON, for damaged objects too") {
  int accepted = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const std::string text = damaged(kSeeds[i % std::size(kSeeds)], i);
    const bool reference = reference_accepts(text);
    CAPTURE(text);
    CAPTURE(fault(text));
    REQUIRE(fault(text).empty() == reference);
    if (!reference) continue;
    ++accepted;
    // Each member reads back to what the reference holds.
    const Json json = parse_json(text);
    std::vector<JsonMember> members;
    read_json_object(text, members);
    REQUIRE(members.size() == json.size());
    for (const JsonMember& member : members) {
      REQUIRE(parse_json(std::string(member.value)) == json.at(member.key));
      if (member.is_string()) REQUIRE(json_text(member.value) == json.at(member.key).get<std::string>());
    }
  }
  CHECK(accepted > 5000);  // else the damage is too heavy to show anything
}
