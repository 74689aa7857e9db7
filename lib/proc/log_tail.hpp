// The end of a log file, for the report on a process that died. Reads at most 64 KiB, whatever the file's size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime::proc {

// At most `count` last lines of what the file holds from `from_byte` on; a line longer than 1000 bytes is cut.
// Empty when the file cannot be read.
std::vector<std::string> log_tail(const std::string& path, int64_t from_byte, size_t count);

}  // namespace vime::proc
