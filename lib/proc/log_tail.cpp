#include "proc/log_tail.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/files.hpp"
#include "base/strings.hpp"

namespace vime::proc {
namespace {

constexpr int64_t kTailBytes = 64 * 1024;
constexpr size_t kLineBytes = 1000;
constexpr std::string_view kTraceback = "Traceback (most recent call last):";

// Where the exception of the first Python traceback stands: after its frames, which are indented. All lines of a
// traceback begin like its first one ("(Worker pid=7) ERROR ..."), and others may stand between them. lines.size() when
// there is none.
size_t first_exception(const std::vector<std::string>& lines) {
  size_t at = 0;
  while (at < lines.size() && lines[at].find(kTraceback) == std::string::npos) ++at;
  if (at == lines.size()) return at;
  const std::string prefix = lines[at].substr(0, lines[at].find(kTraceback));
  for (++at; at < lines.size(); ++at) {
    if (!lines[at].starts_with(prefix) || lines[at].size() == prefix.size()) continue;
    if (lines[at][prefix.size()] != ' ') return at;
  }
  return at;
}

}  // namespace

std::vector<std::string> log_tail(const std::string& path, int64_t from_byte, size_t count) {
  // O_NONBLOCK: a log path may name a FIFO that nobody writes to.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  if (status.st_size < from_byte) from_byte = 0;  // the file was truncated under the process
  const int64_t begin = std::max<int64_t>(from_byte, status.st_size - kTailBytes);
  std::string text(static_cast<size_t>(status.st_size - begin), '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got =
        ::pread(fd.get(), text.data() + filled, text.size() - filled, begin + static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  if (begin > from_byte) {
    const size_t line_end = text.find('\n');  // the first line has lost its beginning
    if (line_end != std::string::npos) text.erase(0, line_end + 1);
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) return {};
  std::vector<std::string> lines = split(text, '\n');
  if (lines.size() > count) {
    const size_t cause = first_exception(lines);
    std::vector<std::string> shown;
    if (cause < lines.size() - count) shown = {lines[cause], "..."};
    shown.insert(shown.end(), lines.end() - static_cast<std::ptrdiff_t>(count), lines.end());
    lines = std::move(shown);
  }
  for (std::string& line : lines) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.size() > kLineBytes) line = line.substr(0, kLineBytes) + "...";
  }
  return lines;
}

}  // namespace vime::proc
