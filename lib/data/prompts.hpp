// Loads the prompts of a data set: built-in sets and JSONL files, one JSON object a line. What the lines hold, how
// errors read and what the ids mean stands in docs/data-and-rewards.md. Blocks on the disk; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "data/builtin.hpp"
#include "data/prompt.hpp"

namespace vime::data {

// A chat template: what the model reads for these messages ([{"role": ..., "content": ...}, ...]). It may throw
// Error{refused}, which makes the line a bad one.
using Render = std::function<std::string(const Json& messages)>;

struct LoadOptions {
  std::vector<std::string> prompt_data;   // each builtin:NAME or a path with an optional slice (prompt_source.hpp)
  std::string what = "data.prompt_data";  // the spec's key, for errors
  std::string input_key = "prompt";
  std::string label_key = "label";             // empty: there are no labels
  std::string metadata_key = "metadata";       // lines may lack it
  std::string reward_key = "reward_type";      // lines may lack it; metadata.rm_type says the same
  std::vector<std::string> reward_types = {};  // that a line may name; empty: any
  // Text prompts become [{"role": "user", "content": <text>}]. Without `render` such prompts keep their messages and an
  // empty text, for the caller to render.
  bool apply_chat_template = false;
  Render render = {};
  int64_t max_bad_lines = 0;
  int64_t max_line_bytes = 16ll << 20;
};

struct PromptSet {
  std::vector<Prompt> prompts;
  int64_t lines = 0;                     // selected by the slices, bad ones included, empty ones not
  int64_t empty_lines = 0;               // nothing but blanks; passed over and not counted by slices
  int64_t bad_lines = 0;                 // left out, at most max_bad_lines
  std::vector<std::string> bad_reasons;  // of the first few, each with file and line
  // Of the selected lines, in order, and the options that decide how they are read. Where the files lie, how they are
  // packed and how their lines end makes no difference.
  uint64_t fingerprint = 0;
};

// Error{refused} with file, line, what was expected and what was found: a source that is missing or selects no line,
// more bad lines than allowed, damaged files, no prompt left.
PromptSet load_prompts(const LoadOptions& options);

// "data/train.jsonl:17", "builtin:sort_digits (prompt 12)": where a prompt came from, for errors.
std::string prompt_place(const Prompt& prompt, const std::vector<std::string>& prompt_data);

}  // namespace vime::data
