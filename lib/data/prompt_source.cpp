#include "data/prompt_source.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/error.hpp"
#include "base/files.hpp"
#include "data/builtin.hpp"

namespace vime::data {
namespace {

constexpr std::string_view kSliceStart = "@[";

std::optional<int64_t> parse_bound(std::string_view text, const std::string& whole) {
  if (text.empty()) return std::nullopt;
  int64_t bound = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound);
  if (error == std::errc() && end == text.data() + text.size()) return bound;
  throw Error(ErrorKind::refused, whole + ": expected a slice of lines such as @[0:100] or @[-50:], found \"" +
                                      std::string(text) + "\" in it");
}

}  // namespace

PromptSource parse_source(const std::string& text) {
  PromptSource source;
  source.text = text;
  if (is_builtin(text)) {
    check_builtin(text);
    source.builtin = true;
    return source;
  }
  source.path = text;
  const size_t start = text.rfind(kSliceStart);
  if (start == std::string::npos || text.back() != ']') return source;
  const std::string_view inner = std::string_view(text).substr(start + 2, text.size() - start - 3);
  const size_t colon = inner.find(':');
  if (colon == std::string_view::npos || start == 0) {
    throw Error(ErrorKind::refused, text + ": expected a path and a slice of its lines such as @[0:100]");
  }
  source.path = text.substr(0, start);
  source.first = parse_bound(inner.substr(0, colon), text);
  source.last = parse_bound(inner.substr(colon + 1), text);
  return source;
}

std::pair<int64_t, int64_t> line_range(const PromptSource& source, int64_t count) {
  const auto place = [count](int64_t bound) {
    return bound < 0 ? std::max<int64_t>(count + bound, 0) : std::min(bound, count);
  };
  const int64_t begin = place(source.first.value_or(0));
  return {begin, std::max(begin, place(source.last.value_or(count)))};
}

void check_source(const PromptSource& source) {
  if (source.builtin) return;
  std::error_code error;
  const fs::file_status status = fs::status(source.path, error);
  const auto refuse = [&source](const std::string& why) { throw Error(ErrorKind::refused, source.path + ": " + why); };
  if (!fs::exists(status)) {
    if (error && error.value() != ENOENT && error.value() != ENOTDIR) refuse(error.message());
    const fs::path whole = fs::absolute(source.path, error);
    refuse("there is no such file" + (whole == source.path ? "" : " (looked for " + whole.string() + ")"));
  }
  if (fs::is_directory(status)) refuse("is a folder; expected a JSONL file");
  if (!fs::is_regular_file(status)) refuse("is no regular file; expected a JSONL file");
  if (::access(source.path.c_str(), R_OK) != 0) refuse(errno_text(errno));
  const uintmax_t size = fs::file_size(source.path, error);
  if (!error && size == 0) refuse("the file is empty; expected one JSON object per line");
}

std::string absolute_source(const std::string& text) {
  const PromptSource source = parse_source(text);
  if (source.builtin || source.path.empty()) return text;
  std::error_code error;
  const fs::path path = fs::absolute(source.path, error);
  return error ? text : path.lexically_normal().string() + text.substr(source.path.size());
}

}  // namespace vime::data
