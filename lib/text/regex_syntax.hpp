// Oniguruma's notation into PCRE2's, for what differs in meaning: white space and word classes, property and script
// names, `\h`, `\v`, `{,n}`, `{n,m}+`, `(?m)`. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>

namespace vime::text {

// An expression for PCRE2 with the options UTF, UCP and MULTILINE. Error{refused} names what cannot be translated.
std::string pcre2_expression(std::string_view oniguruma);

}  // namespace vime::text
