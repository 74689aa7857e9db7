#include "http/target.hpp"

#include <utility>

#include "http/client.hpp"

namespace vime::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      decoded += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

// Reads "a=1&b&a=2" into target; false when a percent sign is wrong.
bool read_query(std::string_view text, Target& target) {
  while (!text.empty()) {
    const std::size_t end = text.find('&');
    const std::string_view item = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    auto key = decode(item.substr(0, equals), true);
    auto value = equals == std::string_view::npos ? std::string() : decode(item.substr(equals + 1), true);
    if (!key || !value) return false;
    target.query.emplace(std::move(*key), std::move(*value));
  }
  return true;
}

}  // namespace

std::optional<Target> parse_target(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.substr(0, kScheme.size()) == kScheme) {
    const std::size_t slash = text.find('/', kScheme.size());
    text = slash == std::string_view::npos ? std::string_view("/") : text.substr(slash);
  }
  text = text.substr(0, text.find('#'));
  if (text.empty() || text[0] != '/') return std::nullopt;
  const std::size_t mark = text.find('?');
  auto path = decode(text.substr(0, mark), false);
  if (!path) return std::nullopt;
  Target target{std::move(*path), {}};
  if (mark != std::string_view::npos && !read_query(text.substr(mark + 1), target)) return std::nullopt;
  return target;
}

std::string url_encode(const std::string& text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace vime::http
