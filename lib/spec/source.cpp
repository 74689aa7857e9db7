#include "spec/source.hpp"

#include <cerrno>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::spec {
namespace {

[[noreturn]] void refuse(const Source& source, size_t line, size_t byte, const std::string& message) {
  const int column = source.column(static_cast<int>(line), static_cast<int>(byte));
  throw Error(ErrorKind::refused, source.place(static_cast<int>(line) + 1, column) + ": " + message);
}

// Length of the UTF-8 sequence at `at`, or 0 when it is none (RFC 3629: no overlong forms, no surrogates, at most
// U+10FFFF).
size_t sequence_length(const std::string& text, size_t at) {
  const auto byte = [&text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  const auto tail = [&byte, at](size_t count) {
    for (size_t i = 1; i <= count; ++i) {
      if ((byte(at + i) & 0xC0u) != 0x80u) return false;
    }
    return true;
  };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second >= 0xA0;
    return tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool too_large = first == 0xF4 && second >= 0x90;
    return tail(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

void check_characters(const Source& source) {
  for (size_t line = 0; line < source.lines.size(); ++line) {
    const std::string& text = source.lines[line];
    for (size_t at = 0; at < text.size();) {
      const size_t length = sequence_length(text, at);
      if (length == 0) refuse(source, line, at, "the text is not UTF-8; save the file as UTF-8");
      const auto byte = static_cast<unsigned char>(text[at]);
      if ((byte < 0x20 && byte != '\t') || byte == 0x7F) {
        refuse(source, line, at, "control character " + std::to_string(byte) + "; expected plain text");
      }
      at += length;
    }
  }
}

void check_indentation(const Source& source) {
  for (size_t line = 0; line < source.lines.size(); ++line) {
    const std::string& text = source.lines[line];
    const size_t content = text.find_first_not_of(" \t");
    if (content == std::string::npos || text[content] == '#') continue;
    const size_t tab = text.find('\t');
    if (tab < content) refuse(source, line, tab, "a tab in the indentation; YAML is indented with spaces");
  }
}

std::string with_plain_line_ends(const std::string& text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      plain += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      plain += '\n';
    }
  }
  return plain;
}

}  // namespace

int Source::column(int line, int byte_offset) const {
  if (line < 0 || static_cast<size_t>(line) >= lines.size()) return byte_offset + 1;
  const std::string& content = lines[static_cast<size_t>(line)];
  int column = 1;
  for (size_t i = 0; i < content.size() && i < static_cast<size_t>(byte_offset); ++i) {
    column += (static_cast<unsigned char>(content[i]) & 0xC0u) != 0x80u;  // continuation bytes are no characters
  }
  return column;
}

std::string Source::place(int line, int column) const {
  return has_positions ? name + ":" + std::to_string(line) + ":" + std::to_string(column) : name;
}

std::string read_spec_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) {
    const std::string reason = error ? error.message() : errno_text(ENOENT);
    throw Error(ErrorKind::refused, file.string() + ": " + reason, "expected the path of a YAML experiment spec");
  }
  if (fs::is_directory(status)) {
    throw Error(ErrorKind::refused, file.string() + ": is a folder; expected a YAML experiment spec");
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(ErrorKind::refused, file.string() + ": " + errno_text(errno));
  std::string text(kMaxSpecBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw Error(ErrorKind::refused, file.string() + ": " + errno_text(errno));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxSpecBytes) {
    throw Error(ErrorKind::refused,
                file.string() + ": is larger than " + format_bytes(kMaxSpecBytes) + ", the most that a spec may have");
  }
  return text;
}

Source make_source(const std::string& name, std::string text, bool has_positions) {
  if (text.rfind("\xEF\xBB\xBF", 0) == 0) text.erase(0, 3);
  Source source;
  source.name = name;
  source.has_positions = has_positions;
  source.text = with_plain_line_ends(text);
  source.lines = split(source.text, '\n');
  check_characters(source);
  check_indentation(source);
  return source;
}

}  // namespace vime::spec
