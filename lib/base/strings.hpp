// Small text functions: splitting, "did you mean", figures for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vime {

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string trim(std::string_view text);

// The candidate nearest to `word` by edit distance (a swap of neighbours counts one), or "" when none is near:
// at most a third of the longer word's length, and at most 4 edits. A candidate that contains `word` as one of its
// "_"-separated parts also counts as near.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

std::string format_bytes(uint64_t bytes);                      // "512 B", "1.50 GiB"
std::string format_seconds(double seconds);                    // "480 ms", "12.3 s", "2 m 05 s"
std::string format_number(double value, int significant = 4);  // "0.03124", "12.5"
std::string hex(uint64_t value);                               // 16 lower-case digits

// Whether an environment variable of this name holds a secret, as far as a name tells: it ends with KEY, TOKEN, SECRET
// or PASSWORD.
bool names_secret(std::string_view name);
// The flag that an argument of a command line names, in the spelling with hyphens, where its program takes both:
// "--max-model-len" of "--max_model_len=64".
std::string flag_of(const std::string& argument);

}  // namespace vime
