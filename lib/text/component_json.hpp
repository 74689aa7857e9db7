// Reading the parts of tokenizer.json: typed members with defaults, and refusals that name the part and say what vime
// supports. `where` is the part's place in the file ("pre_tokenizer.pretokenizers[1]"). Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace vime::text {

constexpr int kMaxComponentDepth = 16;  // of Sequences within each other

[[noreturn]] void refuse_component(const std::string& where, const std::string& found, const std::string& supported);

// The member "type". Error{refused} when absent.
std::string component_type(const Json& component, const std::string& where);

// Members; Error{refused} when of another type, or absent where no default is given.
std::string text_member(const Json& component, std::string_view key, const std::string& where);
bool flag_member(const Json& component, std::string_view key, bool absent, const std::string& where);
int64_t count_member(const Json& component, std::string_view key, int64_t absent, const std::string& where);
const Json& list_member(const Json& component, std::string_view key, const std::string& where);
// Absent and null are the same: nullptr.
const Json* optional_member(const Json& component, std::string_view key);

}  // namespace vime::text
