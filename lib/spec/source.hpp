// The text of a spec before it is parsed: read with a bound, checked for what YAML parsers pass over or explain badly.
// Errors are Error{refused} with "file:line:column: ".
#pragma once

#include <string>
#include <vector>

#include "base/files.hpp"

namespace vime::spec {

struct Source {
  std::string name;                // as errors print it
  std::string text;                // UTF-8, lines end in \n, no byte order mark
  std::vector<std::string> lines;  // of the text, without \n

  bool has_positions = true;  // false: an override, whose errors need no line and column

  // Column in characters, from 1, of a byte offset in a line (both from 0).
  int column(int line, int byte_offset) const;
  // "name:line:column", or the name alone without positions. Both from 1.
  std::string place(int line, int column) const;
};

inline constexpr size_t kMaxSpecBytes = 1 << 20;

// The bytes of a file of at most kMaxSpecBytes; pipes may be read too.
std::string read_spec_file(const fs::path& file);

// Accepts CRLF and a byte order mark; refuses text that is not UTF-8, control characters and tabs in an indentation.
Source make_source(const std::string& name, std::string text, bool has_positions = true);

}  // namespace vime::spec
