// The lines of a file, plain or gzip, one after the other in bounded memory. Only LF or CRLF ends a line: a lone CR,
// U+2028 and NUL are bytes like all others; the last line needs no end. A byte order mark at the start of the file is
// left out. One thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace vime::data {

class LineReader {
 public:
  // Gzip is told by its first bytes, not by the name; several members one after the other are read as one file. Error
  // {refused} for a file that cannot be read or is of another packed kind.
  LineReader(const std::string& path, int64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line, without its end; false behind the last one. `line` is valid until the next call. Error{refused}
  // where the disk fails or packed data is damaged, cut off, or followed by something else.
  bool next(std::string_view& line);

  int64_t number() const;  // of the line that next() gave, from 1
  // The line was longer than max_line_bytes; only its beginning was given.
  bool is_too_long() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace vime::data
