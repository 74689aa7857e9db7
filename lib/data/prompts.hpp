// The prompts of a data set. Built-in sets are generated: `builtin:sort_digits` asks to sort four digits ("3142=" ->
// "1234"), `builtin:sort_digits/heldout` holds the prompts that training never sees. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vime::data {

struct Prompt {
  int64_t id = 0;  // unique within the task, the same in every run
  std::string text;
  std::string label;
  bool operator==(const Prompt&) const = default;
};

bool is_builtin(std::string_view prompt_data);  // begins with "builtin:"
std::vector<std::string> builtin_names();       // with "builtin:" and the split
// The characters that prompts and answers of this built-in set are made of. Error{refused} with the nearest name.
std::string builtin_alphabet(const std::string& prompt_data);

// All prompts in the data set's own order. `prompt_data` is data.prompt_data of the spec; Error{refused} for a name
// that is not known.
std::vector<Prompt> load_prompts(const std::string& prompt_data);

// Whether sort_digits keeps these digits out of training: a pure function of the string, true for about one in twenty.
bool is_held_out(std::string_view digits);

}  // namespace vime::data
