// Python's string methods, for what templates use of them. Text is well-formed UTF-8 and counted in characters. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vime::text::jinja {

bool is_python_space(char32_t code);  // str.isspace: White_Space and the four separators of ASCII

enum class Side { left, right, both };
// Without any of `characters` (none: white space) at the ends.
std::string strip(std::string_view text, const std::optional<std::string>& characters, Side side);

// At white space when there is no separator. limit < 0: as often as it goes. `from_right` matters with a limit only.
std::vector<std::string> python_split(std::string_view text, const std::optional<std::string>& separator, int64_t limit,
                                      bool from_right);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

std::string replaced(std::string_view text, const std::string& from, const std::string& to, int64_t limit);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string title(std::string_view text);         // the method: every run of letters
std::string title_filter(std::string_view text);  // Jinja's filter: words at white space, "-" and opening brackets

int64_t length(std::string_view text);  // in characters
// Characters begin, begin + step... before (or after) end, all in range.
std::string slice(std::string_view text, int64_t begin, int64_t end, int64_t step);

}  // namespace vime::text::jinja
