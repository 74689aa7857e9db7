// Cuts a template into tokens as Jinja 3.1 does with trim_blocks and lstrip_blocks on: text between tags, and the
// words and signs within them. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vime::text::jinja {

enum class TokenKind { data, begin_output, end_output, begin_block, end_block, name, string, integer, real, sign, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // a string's own characters, with its escapes resolved; a number without "_"
  int line = 1;
};

// The last token is TokenKind::end. Error{refused} names the line of what is no template.
std::vector<Token> tokenize(std::string_view source);

}  // namespace vime::text::jinja
