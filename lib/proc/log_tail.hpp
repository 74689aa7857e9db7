// The end of a log file, for the report on a process that died. Reads at most 64 KiB, whatever the file's size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime::proc {

// At most `count` last lines of what the file holds from `from_byte` on; a line longer than 1000 bytes is cut. Of
// Python programs that end one another the first exception tells why: where it stands further up, it and "..." come
// before those lines. Empty when the file cannot be read.
std::vector<std::string> log_tail(const std::string& path, int64_t from_byte, size_t count);

}  // namespace vime::proc
