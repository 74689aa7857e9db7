// Data sets that are generated: `builtin:sort_digits` asks to sort four digits ("3142=" -> "1234"),
// `builtin:sort_8_digits` eight; `.../heldout` holds the prompts that training never sees. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/prompt.hpp"

namespace vime::data {

bool is_builtin(std::string_view prompt_data);  // begins with "builtin:"
std::vector<std::string> builtin_names();       // with "builtin:" and the split
// Error{refused} with the nearest name for a set that is not known.
void check_builtin(const std::string& prompt_data);
// The characters that prompts and answers of this built-in set are made of. Error{refused} with the nearest name.
std::string builtin_alphabet(const std::string& prompt_data);
// All its prompts; ids lie in [0, kBuiltinIds). Error{refused} with the nearest name.
std::vector<Prompt> builtin_prompts(const std::string& prompt_data);
inline constexpr int64_t kBuiltinIds = 100000;
// Ids of this set lie below this number.
int64_t builtin_ids(const std::string& prompt_data);

// Whether these sets keep these digits out of training: a pure function of the string, true for about one in twenty.
bool is_held_out(std::string_view digits);

}  // namespace vime::data
