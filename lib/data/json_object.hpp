// One JSON object (RFC 8259) taken apart without building a tree: its members as pieces of the text, so that a number
// or an object keeps the spelling it was written with. Stricter than most parsers: a key given twice, at any depth,
// numbers beyond a double's range and text that is not UTF-8 are errors. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vime::data {

struct JsonMember {
  std::string key;
  std::string_view value;  // JSON text, part of the text that was read

  bool is_string() const { return value.front() == '"'; }
  bool is_object() const { return value.front() == '{'; }
  bool is_list() const { return value.front() == '['; }
  bool is_null() const { return value == "null"; }
};

inline constexpr int kMaxJsonDepth = 64;

// Fills `members` in order. Returns "", or what is wrong: `not JSON: expected "," or "}", found "x" (column 17)`.
std::string read_json_object(std::string_view text, std::vector<JsonMember>& members);

// What the JSON text of a string stands for. It must have been read by read_json_object.
std::string json_text(std::string_view value);

// "the text \"abc\"", "the number 3", "a list", "null": a value for errors, cut after some bytes.
std::string describe_json(std::string_view value);

}  // namespace vime::data
