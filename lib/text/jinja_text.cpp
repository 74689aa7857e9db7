#include "text/jinja_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text::jinja {
namespace {

// The shortest digits that read back to the same number, in Python's layout.
std::string real_text(double value, const char* not_a_number, const char* infinity) {
  if (std::isnan(value)) return not_a_number;
  if (std::isinf(value)) return (value < 0 ? "-" : "") + std::string(infinity);
  char digits[40];
  const auto scientific = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  const std::string text(digits, scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  std::string plain(digits, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

void append_escape(char32_t code, std::string& text) {
  char escape[12];
  std::snprintf(escape, sizeof escape,
                code < 0x100     ? "\\x%02x"
                : code < 0x10000 ? "\\u%04x"
                                 : "\\U%08x",
                static_cast<unsigned>(code));
  text += escape;
}

std::string quoted(const std::string& text) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  std::string result(1, quote);
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    const char c = text[i];
    if (c == '\\' || c == quote) {
      result += {'\\', c};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
    } else if (!is_printable(character.code)) {
      append_escape(character.code, result);
    } else {
      result.append(text, i, character.length);
    }
    i += character.length;
  }
  return result + quote;
}

class Writer {
 public:
  explicit Writer(Budget& budget) : budget_(budget) {}

  void write(const Value& value, int depth) {
    if (depth > Budget::kDepth) fail("values are nested too deep to be shown");
    budget_.charge(4);
    if (value.is_undefined()) {
      text_ += "Undefined";
    } else if (value.is_none()) {
      text_ += "None";
    } else if (value.is_bool()) {
      text_ += value.truthy() ? "True" : "False";
    } else if (value.is_int()) {
      text_ += std::to_string(value.integer());
    } else if (value.is_float()) {
      text_ += real_text(value.real(), "nan", "inf");
    } else if (value.is_string()) {
      budget_.charge(value.string().size());
      text_ += quoted(value.string());
    } else if (value.is_list()) {
      write_list(value.list(), depth);
    } else if (value.is_dict()) {
      write_dict(value.dict(), depth);
    } else {
      fail("a " + value.object().type() + " has no text that could be shown");
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void write_list(const List& list, int depth) {
    if (list.kind == List::Kind::range && !list.label.empty()) {
      text_ += list.label;
      return;
    }
    const bool view = list.kind == List::Kind::view;
    if (list.kind > List::Kind::tuple && !view) fail("a generator has no text that could be shown", "add | list");
    const bool tuple = list.kind == List::Kind::tuple;
    if (view) text_ += list.label + "(";
    text_ += tuple ? '(' : '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) text_ += ", ";
      write(list.items[i], depth + 1);
    }
    if (tuple && list.items.size() == 1) text_ += ',';
    text_ += tuple ? ')' : ']';
    if (view) text_ += ')';
  }

  void write_dict(const Dict& dict, int depth) {
    text_ += '{';
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) text_ += ", ";
      write(dict.items[i].first, depth + 1);
      text_ += ": ";
      write(dict.items[i].second, depth + 1);
    }
    text_ += '}';
  }

  Budget& budget_;
  std::string text_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {
    item_separator_ = style.item_separator.value_or(style.indent ? "," : ", ");
    key_separator_ = style.key_separator.value_or(": ");
  }

  void write(const Value& value, int depth) {
    budget_.charge(4);
    if (value.is_none()) {
      text_ += "null";
    } else if (value.is_bool()) {
      text_ += value.truthy() ? "true" : "false";
    } else if (value.is_int()) {
      text_ += std::to_string(value.integer());
    } else if (value.is_float()) {
      text_ += real_text(value.real(), "NaN", "Infinity");
    } else if (value.is_string()) {
      write_string(value.string());
    } else if (value.is_list() && value.list().kind <= List::Kind::tuple) {
      write_list(value.list(), depth);
    } else if (value.is_dict()) {
      write_dict(value.dict(), depth);
    } else {
      fail("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void write_string(const std::string& string) {
    budget_.charge(string.size());
    text_ += '"';
    for (size_t i = 0; i < string.size();) {
      const Character character = character_at(string, i);
      static constexpr std::string_view kNamed = "\"\\\n\r\t\b\f";
      const size_t named = character.length == 1 ? kNamed.find(string[i]) : std::string_view::npos;
      if (named != std::string_view::npos) {
        text_ += {'\\', "\"\\nrtbf"[named]};
      } else if (character.code < 0x20 || (style_.ensure_ascii && character.code >= 0x7f)) {
        write_unicode(character.code);
      } else {
        text_.append(string, i, character.length);
      }
      i += character.length;
    }
    text_ += '"';
  }

  void write_unicode(char32_t code) {
    const auto unit = [&](char32_t value) {
      char escape[12];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(value));
      text_ += escape;
    };
    if (code == 0x7f) {
      text_ += '\x7f';
    } else if (code < 0x10000) {
      unit(code);
    } else {
      unit(0xd800 + ((code - 0x10000) >> 10));
      unit(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }

  void new_line(int depth) {
    if (!style_.indent) return;
    text_ += '\n';
    for (int i = 0; i < depth; ++i) text_ += *style_.indent;
    budget_.charge(static_cast<size_t>(depth) * style_.indent->size());
  }

  void write_list(const List& list, int depth) {
    if (list.items.empty()) {
      text_ += "[]";
      return;
    }
    text_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) text_ += item_separator_;
      new_line(depth + 1);
      write(list.items[i], depth + 1);
    }
    new_line(depth);
    text_ += ']';
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.items.empty()) {
      text_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return order(a->first, b->first, budget_) < 0; });
    }
    text_ += '{';
    bool first = true;
    for (const auto* item : items) {
      if (!first) text_ += item_separator_;
      first = false;
      new_line(depth + 1);
      write_key(item->first);
      text_ += key_separator_;
      write(item->second, depth + 1);
    }
    new_line(depth);
    text_ += '}';
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.string());
    if (!key.is_number() && !key.is_none()) fail("keys must be str, int, float, bool or None, not " + type_name(key));
    text_ += '"';
    write(key, 0);
    text_ += '"';
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string item_separator_;
  std::string key_separator_;
  std::string text_;
};

}  // namespace

std::string to_text(const Value& value, Budget& budget) {
  if (value.is_undefined()) return "";
  if (value.is_string()) {
    budget.charge(value.string().size() / 8);
    return value.string();
  }
  return to_repr(value, budget);
}

std::string to_repr(const Value& value, Budget& budget) {
  Writer writer(budget);
  writer.write(value, 0);
  return writer.take();
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace vime::text::jinja
