#include "text/regex_syntax.hpp"

#include <array>
#include <cctype>
#include <vector>

#include "base/error.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

// White_Space and its complement. PCRE2's own \s also takes U+180E, which has lost that property.
constexpr const char* kSpace = R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr const char* kNotSpace =
    R"(\x00-\x08\x0E-\x1F\x21-\x84\x86-\x9F\xA1-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside a class Oniguruma counts Latin-1's superscripts and fractions in.
constexpr const char* kWordAlone = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";

struct NamedProperty {
  std::string_view name;   // lower case, without spaces, '-' and '_'
  std::string_view items;  // what stands for it inside a class
};
constexpr auto kProperties = std::to_array<NamedProperty>({
    {"l", R"(\p{L})"},
    {"letter", R"(\p{L})"},
    {"lu", R"(\p{Lu})"},
    {"uppercaseletter", R"(\p{Lu})"},
    {"ll", R"(\p{Ll})"},
    {"lowercaseletter", R"(\p{Ll})"},
    {"lt", R"(\p{Lt})"},
    {"titlecaseletter", R"(\p{Lt})"},
    {"lm", R"(\p{Lm})"},
    {"modifierletter", R"(\p{Lm})"},
    {"lo", R"(\p{Lo})"},
    {"otherletter", R"(\p{Lo})"},
    {"m", R"(\p{M})"},
    {"mark", R"(\p{M})"},
    {"combiningmark", R"(\p{M})"},
    {"mn", R"(\p{Mn})"},
    {"nonspacingmark", R"(\p{Mn})"},
    {"mc", R"(\p{Mc})"},
    {"spacingmark", R"(\p{Mc})"},
    {"me", R"(\p{Me})"},
    {"enclosingmark", R"(\p{Me})"},
    {"n", R"(\p{N})"},
    {"number", R"(\p{N})"},
    {"nd", R"(\p{Nd})"},
    {"decimalnumber", R"(\p{Nd})"},
    {"digit", R"(\p{Nd})"},
    {"nl", R"(\p{Nl})"},
    {"letternumber", R"(\p{Nl})"},
    {"no", R"(\p{No})"},
    {"othernumber", R"(\p{No})"},
    {"p", R"(\p{P})"},
    {"punctuation", R"(\p{P})"},
    {"punct", R"(\p{P})"},
    {"pc", R"(\p{Pc})"},
    {"connectorpunctuation", R"(\p{Pc})"},
    {"pd", R"(\p{Pd})"},
    {"dashpunctuation", R"(\p{Pd})"},
    {"ps", R"(\p{Ps})"},
    {"openpunctuation", R"(\p{Ps})"},
    {"pe", R"(\p{Pe})"},
    {"closepunctuation", R"(\p{Pe})"},
    {"pi", R"(\p{Pi})"},
    {"initialpunctuation", R"(\p{Pi})"},
    {"pf", R"(\p{Pf})"},
    {"finalpunctuation", R"(\p{Pf})"},
    {"po", R"(\p{Po})"},
    {"otherpunctuation", R"(\p{Po})"},
    {"s", R"(\p{S})"},
    {"symbol", R"(\p{S})"},
    {"sm", R"(\p{Sm})"},
    {"mathsymbol", R"(\p{Sm})"},
    {"sc", R"(\p{Sc})"},
    {"currencysymbol", R"(\p{Sc})"},
    {"sk", R"(\p{Sk})"},
    {"modifiersymbol", R"(\p{Sk})"},
    {"so", R"(\p{So})"},
    {"othersymbol", R"(\p{So})"},
    {"z", R"(\p{Z})"},
    {"separator", R"(\p{Z})"},
    {"zs", R"(\p{Zs})"},
    {"spaceseparator", R"(\p{Zs})"},
    {"zl", R"(\p{Zl})"},
    {"zp", R"(\p{Zp})"},
    {"c", R"(\p{C})"},
    {"cc", R"(\p{Cc})"},
    {"cf", R"(\p{Cf})"},
    {"co", R"(\p{Co})"},
    {"cn", R"(\p{Cn})"},
    {"alpha", R"(\p{Alphabetic})"},
    {"alphabetic", R"(\p{Alphabetic})"},
    {"upper", R"(\p{Uppercase})"},
    {"uppercase", R"(\p{Uppercase})"},
    {"lower", R"(\p{Lowercase})"},
    {"lowercase", R"(\p{Lowercase})"},
    {"alnum", R"(\p{Alphabetic}\p{Nd})"},
});

// Reads the expression once from left to right and writes the translation.
class Translation {
 public:
  explicit Translation(std::string_view source) : source_(source) {}

  std::string run() {
    while (!at_end()) {
      const char c = peek();
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        begin_atom();
        character_class();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        close_group();
      } else if (c == '{') {
        interval();
      } else {
        if (std::string_view("*+?|^$").find(c) == std::string_view::npos) begin_atom();
        copy_character();
      }
    }
    return std::move(out_);
  }

 private:
  bool at_end() const { return place_ >= source_.size(); }
  char peek(size_t ahead = 0) const { return place_ + ahead < source_.size() ? source_[place_ + ahead] : '\0'; }
  bool looking_at(std::string_view text) const { return source_.substr(place_, text.size()) == text; }
  void begin_atom() { atom_ = out_.size(); }

  void copy_character() {
    const size_t length = std::max<size_t>(1, character_length(source_, place_));
    out_ += source_.substr(place_, length);
    place_ += length;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        ErrorKind::refused,
        "expression \"" + std::string(source_) + "\": " + what + " at byte " + std::to_string(place_) +
            " is not supported",
        "supported: classes, groups, look-around, quantifiers, \\s \\w \\d \\h \\b \\p{...} and character escapes");
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (peek(1) == '*') refuse("\"(*\"");
    if (!looking_at("(?")) {
      copy_character();
      return;
    }
    for (std::string_view start : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (looking_at(start)) {
        out_ += start;
        place_ += start.size();
        return;
      }
    }
    const size_t end = source_.find_first_of(":)", place_);
    const std::string_view options = source_.substr(place_ + 2, end == std::string_view::npos ? 0 : end - place_ - 2);
    if (options.empty() || options.find_first_not_of("imx-") != std::string_view::npos) {
      refuse("group \"" + std::string(source_.substr(place_, 4)) + "\"");
    }
    out_ += "(?";
    for (char option : options) out_ += option == 'm' ? 's' : option;  // Oniguruma's m: the dot takes newlines too
    out_ += source_[end];
    if (source_[end] == ')') groups_.pop_back();
    place_ = end + 1;
  }

  void close_group() {
    if (groups_.empty()) refuse("\")\" without \"(\"");
    atom_ = groups_.back();
    groups_.pop_back();
    copy_character();
  }

  // {n}, {n,}, {,m} or {n,m}; any other brace is a plain character. A quantifier behind an interval repeats the whole,
  // except that {n,m}? is lazy.
  void interval() {
    size_t end = place_ + 1;
    while (end < source_.size() && (std::isdigit(static_cast<unsigned char>(source_[end])) || source_[end] == ','))
      ++end;
    const std::string_view inside = source_.substr(place_ + 1, end - place_ - 1);
    const size_t comma = inside.find(',');
    const bool well_formed = end < source_.size() && source_[end] == '}' && !inside.empty() && inside != "," &&
                             comma == inside.rfind(',') && !out_.empty();
    if (!well_formed) {
      begin_atom();
      out_ += "\\{";
      ++place_;
      return;
    }
    out_ += "{" + std::string(comma == 0 ? "0" : "") + std::string(inside) + "}";
    place_ = end + 1;
    const bool repeats = peek() == '+' || peek() == '*' || (peek() == '?' && comma == std::string_view::npos);
    if (repeats) {
      out_.insert(atom_, "(?:");
      out_ += ")";
    } else if (peek() == '?') {
      copy_character();
    }
  }

  void escape() {
    const char c = peek(1);
    const auto class_of = [&](const std::string& items) {
      begin_atom();
      out_ += items;
      place_ += 2;
    };
    const std::string word = "[" + std::string(kWordAlone) + "]";
    switch (c) {
      case 's':
        return class_of("[" + std::string(kSpace) + "]");
      case 'S':
        return class_of("[^" + std::string(kSpace) + "]");
      case 'w':
        return class_of(word);
      case 'W':
        return class_of("[^" + std::string(kWordAlone) + "]");
      case 'b':
        return class_of("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
      case 'B':
        return class_of("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
      case 'A':
      case 'z':
      case 'Z':
        return class_of(std::string("\\") + c);
      case 'p':
      case 'P': {
        begin_atom();
        bool negated = false;
        const std::string items = property(negated);
        out_ += negated ? "[^" + items + "]" : "[" + items + "]";
        return;
      }
      default:
        begin_atom();
        plain_escape();
    }
  }

  // Escapes that mean the same inside and outside a class.
  void plain_escape() {
    const char c = peek(1);
    if (c == 'd' || c == 'D') {
      out_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}";
      place_ += 2;
    } else if (c == 'h') {
      out_ += in_class_ ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
      place_ += 2;
    } else if (c == 'v') {
      out_ += "\\x0B";
      place_ += 2;
    } else if (c == 'u') {
      hex_digits(2, 4);
    } else if (c == 'x') {
      if (peek(2) == '{') {
        const size_t end = source_.find('}', place_);
        if (end == std::string_view::npos) refuse("\"\\x{\" without \"}\"");
        hex_digits(3, end - place_ - 3);
        ++place_;
      } else {
        hex_digits(2, 2);
      }
    } else if (c != '\0' && std::string_view("nrtfae").find(c) != std::string_view::npos) {
      out_ += std::string("\\") + c;
      place_ += 2;
    } else if (c == '\0' || std::isalnum(static_cast<unsigned char>(c))) {
      refuse(std::string("\"\\") + c + "\"");
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      ++place_;
      copy_character();
    } else {
      out_ += std::string("\\") + c;
      place_ += 2;
    }
  }

  void hex_digits(size_t from, size_t count) {
    const std::string digits(source_.substr(std::min(source_.size(), place_ + from), count));
    if (digits.empty() || digits.size() > 6 || digits.size() < count ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      refuse("\"" + std::string(source_.substr(place_, 4)) + "\"");
    }
    out_ += "\\x{" + digits + "}";
    place_ += from + count;
  }

  // Reads \p{...} and gives the class items that stand for it.
  std::string property(bool& negated) {
    const size_t end = source_.find('}', place_);
    if (peek(2) != '{' || end == std::string_view::npos) refuse("\"\\p\" without braces");
    std::string_view name = source_.substr(place_ + 3, end - place_ - 3);
    negated = peek(1) == 'P';
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string key;
    for (char c : name) {
      if (c != ' ' && c != '-' && c != '_') key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    std::string items = items_of(key, name);
    place_ = end + 1;
    return items;
  }

  std::string items_of(const std::string& key, std::string_view name) const {
    if (key == "space" || key == "whitespace") return kSpace;
    if (key == "word") return in_class_ ? kWord : kWordAlone;
    if (key == "any") return R"(\x00-\x{10FFFF})";
    for (const NamedProperty& known : kProperties) {
      if (known.name == key) return std::string(known.items);
    }
    for (char c : name) {
      if (!std::isalpha(static_cast<unsigned char>(c)) && c != '_') refuse("property \"" + std::string(name) + "\"");
    }
    return "\\p{sc:" + std::string(name) + "}";  // a script; the compiler refuses a name that is none
  }

  void character_class() {
    in_class_ = true;
    copy_character();
    if (peek() == '^') copy_character();
    if (peek() == ']') {
      out_ += "\\]";
      ++place_;
    }
    while (!at_end() && peek() != ']') {
      if (looking_at("&&")) refuse("\"&&\" in a class");
      if (peek() == '[') {
        posix_bracket();
      } else if (peek() == '\\') {
        class_escape();
      } else {
        copy_character();
      }
    }
    if (at_end()) refuse("a class without \"]\"");
    copy_character();
    in_class_ = false;
  }

  void posix_bracket() {
    const size_t end = source_.find(":]", place_);
    if (peek(1) != ':' || end == std::string_view::npos) refuse("a class within a class");
    const std::string name(source_.substr(place_ + 2, end - place_ - 2));
    out_ += name == "punct" ? R"(\p{P}\p{S})" : items_of(name, "?");
    place_ = end + 2;
  }

  void class_escape() {
    const char c = peek(1);
    if (c == 's' || c == 'S' || c == 'w') {
      out_ += c == 's' ? kSpace : c == 'S' ? kNotSpace : kWord;
      place_ += 2;
    } else if (c == 'p' || c == 'P') {
      bool negated = false;
      std::string items = property(negated);
      if (negated) {
        if (items.rfind("\\p{", 0) != 0 || items.find('}') != items.size() - 1) refuse("a negated property in a class");
        items[1] = 'P';
      }
      out_ += items;
    } else if (c == 'b') {
      out_ += "\\x08";
      place_ += 2;
    } else {
      plain_escape();
    }
  }

  std::string_view source_;
  std::string out_;
  size_t place_ = 0;
  size_t atom_ = 0;  // where the last atom begins in out_
  bool in_class_ = false;
  std::vector<size_t> groups_;
};

}  // namespace

std::string pcre2_expression(std::string_view oniguruma) {
  if (!is_valid_utf8(oniguruma)) throw Error(ErrorKind::refused, "an expression that is not UTF-8");
  return Translation(oniguruma).run();
}

}  // namespace vime::text
