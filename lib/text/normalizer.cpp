#include "text/normalizer.hpp"

#include <vector>

#include "text/byte_level.hpp"
#include "text/component_json.hpp"
#include "text/split.hpp"
#include "text/unicode.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

constexpr const char* kSupported =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, ByteLevel, Sequence";

class ToNormalForm final : public Normalizer {
 public:
  explicit ToNormalForm(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override {
    if (!is_ascii(text)) text = normalized(text, form_);
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string lower;
    lower.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const Character character = character_at(text, i);
      append_character(lower, lower_case(character.code));
      if (character.code == 0x130) append_character(lower, 0x307);  // the one letter whose small form is two characters
      i += character.length;
    }
    text = std::move(lower);
  }
};

class StripAccents final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string plain;
    for (size_t i = 0; i < text.size();) {
      const Character character = character_at(text, i);
      if (!is_mark(character.code)) plain.append(text, i, character.length);
      i += character.length;
    }
    text = std::move(plain);
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    size_t begin = 0;
    size_t end = 0;  // of the last character that is no white space
    bool inside = !left_;
    for (size_t i = 0; i < text.size();) {
      const Character character = character_at(text, i);
      if (!is_whitespace(character.code)) {
        if (!inside) begin = i;
        inside = true;
        end = i + character.length;
      }
      i += character.length;
    }
    if (!inside) begin = text.size();
    if (!right_) end = text.size();
    text = begin < end ? text.substr(begin, end - begin) : "";
  }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Expression pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text) const override { text = Expression::Finder(pattern_).replaced(text, content_); }

 private:
  Expression pattern_;
  std::string content_;
};

class ByteLevel final : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string mapped;
    append_byte_level(text, mapped);
    text = std::move(mapped);
  }
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(std::string& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

std::unique_ptr<const Normalizer> make_sequence(const Json& component, const std::string& where, int depth) {
  if (depth >= kMaxComponentDepth) refuse_component(where, "a Sequence this deep", "16 levels");
  std::vector<std::unique_ptr<const Normalizer>> parts;
  for (const Json& part : list_member(component, "normalizers", where)) {
    auto made = make_normalizer(part, where + ".normalizers[" + std::to_string(parts.size()) + "]", depth + 1);
    if (made) parts.push_back(std::move(made));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const Json& component, const std::string& where, int depth) {
  if (component.is_null()) return nullptr;
  const std::string type = component_type(component, where);
  if (type == "NFC") return std::make_unique<ToNormalForm>(NormalForm::nfc);
  if (type == "NFD") return std::make_unique<ToNormalForm>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<ToNormalForm>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<ToNormalForm>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") {
    return std::make_unique<Strip>(flag_member(component, "strip_left", true, where),
                                   flag_member(component, "strip_right", true, where));
  }
  if (type == "Prepend") return std::make_unique<Prepend>(text_member(component, "prepend", where));
  if (type == "Replace") {
    const Json* pattern = optional_member(component, "pattern");
    return std::make_unique<Replace>(Expression::from_json(pattern ? *pattern : Json(), where + ".pattern"),
                                     text_member(component, "content", where));
  }
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Sequence") return make_sequence(component, where, depth);
  refuse_component(where, "normalizer \"" + type + "\"", kSupported);
}

}  // namespace vime::text
