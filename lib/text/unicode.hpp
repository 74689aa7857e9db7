// Unicode data: normal forms, case and categories. Pure functions on well-formed text; any thread. A build without
// VIME_TOKENIZERS knows ASCII only: it refuses every character above with a sentence that says so.
#pragma once

#include <string>
#include <string_view>

namespace vime::text {

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalized(std::string_view text, NormalForm form);

// Simple case mappings, one character to one.
char32_t lower_case(char32_t code);
char32_t upper_case(char32_t code);
char32_t title_case(char32_t code);

bool is_letter(char32_t code);       // L*
bool is_number(char32_t code);       // N*
bool is_mark(char32_t code);         // M*
bool is_punctuation(char32_t code);  // P*
bool is_cased(char32_t code);        // Lu, Ll, Lt
bool is_printable(char32_t code);    // what Python's repr shows as it is: no separator but the space, nothing of C*
// \w of Unicode's TR18: Alphabetic, M*, Nd, Pc and the two joiners.
bool is_word_character(char32_t code);

}  // namespace vime::text
