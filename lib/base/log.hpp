// Log lines on stderr: "14:02:11.123 I loop: text". Any thread may call; each call writes one whole line.
// The tag is the room's name. A worker's stderr is its log file.
#pragma once

#include <string>
#include <string_view>

namespace vime::log {

enum class Level { debug, info, warning, error };

void set_level(Level least);
// Called with each finished line instead of writing it to stderr (a progress line has to be cleared first). Null
// restores stderr.
void set_sink(void (*sink)(const std::string& line));

// Every line goes to this file too, appended. "" ends that. Error{exhausted} when it cannot be opened.
void tee_to(const std::string& path);

void write(Level level, std::string_view tag, const std::string& text);
inline void debug(std::string_view tag, const std::string& text) {
  write(Level::debug, tag, text);
}
inline void info(std::string_view tag, const std::string& text) {
  write(Level::info, tag, text);
}
inline void warning(std::string_view tag, const std::string& text) {
  write(Level::warning, tag, text);
}
inline void error(std::string_view tag, const std::string& text) {
  write(Level::error, tag, text);
}

}  // namespace vime::log
