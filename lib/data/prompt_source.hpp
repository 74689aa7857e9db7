// Where prompts come from, as data.prompt_data names it: `builtin:NAME`, or the path of a JSONL file with an optional
// Python slice of its lines (`gsm8k.jsonl@[0:100]`, `x.jsonl.gz@[-50:]`). Pure functions but for check_source; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace vime::data {

struct PromptSource {
  std::string text;  // as it was written
  bool builtin = false;
  std::string path;              // of the file; relative paths are relative to the current folder
  std::optional<int64_t> first;  // negative: counted from the end
  std::optional<int64_t> last;   // one behind the last

  // Whether the slice can only be told once the lines are counted.
  bool counts_from_end() const { return first.value_or(0) < 0 || last.value_or(0) < 0; }
};

// Error{refused} for a slice that is none, and for a built-in name that is not known.
PromptSource parse_source(const std::string& text);

// [begin, end) of `count` lines, as Python's slices: what lies outside is cut off, begin may be end. Without a count
// (counts_from_end() is false) end may lie behind the last line.
std::pair<int64_t, int64_t> line_range(const PromptSource& source, int64_t count = INT64_MAX);

// Looks at the file, reads none of it. Error{refused}: it is missing, a folder or another thing that is no file, empty,
// or may not be read.
void check_source(const PromptSource& source);

// The same source under an absolute path, so that it can be read from another folder.
std::string absolute_source(const std::string& text);

}  // namespace vime::data
