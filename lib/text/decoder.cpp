#include "text/decoder.hpp"

#include <algorithm>
#include <charconv>

#include "text/byte_level.hpp"
#include "text/component_json.hpp"
#include "text/metaspace.hpp"
#include "text/split.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

constexpr const char* kSupported = "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder, Sequence";

class ByteLevel final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) append_bytes(token, bytes);
    tokens = {valid_utf8(bytes)};
  }

 private:
  // A token with a character that stands for no byte is text as it is.
  static void append_bytes(const std::string& token, std::string& bytes) {
    const size_t before = bytes.size();
    for (size_t i = 0; i < token.size();) {
      const Character character = character_at(token, i);
      const int byte = byte_of_character(character.code);
      if (byte < 0) {
        bytes.resize(before);
        bytes += token;
        return;
      }
      bytes += static_cast<char>(static_cast<uint8_t>(byte));
      i += character.length;
    }
  }
};

class Replace final : public Decoder {
 public:
  Replace(Expression pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& tokens) const override {
    Expression::Finder finder(pattern_);
    for (std::string& token : tokens) token = finder.replaced(token, content_);
  }

 private:
  Expression pattern_;
  std::string content_;
};

// Runs of tokens like "<0xE2>" are bytes; a run that is no UTF-8 gives U+FFFD for each of them.
class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> decoded;
    std::string bytes;
    const auto end_run = [&] {
      if (bytes.empty()) return;
      if (is_valid_utf8(bytes)) {
        decoded.push_back(bytes);
      } else {
        for (size_t i = 0; i < bytes.size(); ++i) decoded.emplace_back("\xef\xbf\xbd");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(static_cast<uint8_t>(byte));
      } else {
        end_run();
        decoded.push_back(std::move(token));
      }
    }
    end_run();
    tokens = std::move(decoded);
  }

 private:
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || token.rfind("<0x", 0) != 0 || token[5] != '>') return -1;
    int byte = -1;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    return error == std::errc() && end == token.data() + 5 && byte >= 0 ? byte : -1;
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string text;
    for (const std::string& token : tokens) text += token;
    tokens = {text};
  }
};

// Takes up to `start` of one character off the beginning of each token, and up to `stop` off its end.
class Strip final : public Decoder {
 public:
  Strip(std::string content, int64_t start, int64_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& tokens) const override {
    const size_t length = content_.size();
    for (std::string& token : tokens) {
      size_t begin = 0;
      size_t end = token.size();
      for (int64_t i = 0; i < start_ && token.compare(begin, length, content_) == 0; ++i) begin += length;
      for (int64_t i = 0; i < stop_ && end >= begin + length && token.compare(end - length, length, content_) == 0;
           ++i) {
        end -= length;
      }
      token = token.substr(begin, end - begin);
    }
  }

 private:
  std::string content_;
  int64_t start_;
  int64_t stop_;
};

class Metaspace final : public Decoder {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}
  void apply(std::vector<std::string>& tokens) const override {
    bool first = true;
    for (std::string& token : tokens) {
      const bool dropped = first && options_.prepend != MetaspaceOptions::Prepend::never;
      first = false;
      for (size_t at = 0; (at = token.find(options_.replacement, at)) != std::string::npos;) {
        token.replace(at, options_.replacement.size(), dropped ? "" : " ");
        at += dropped ? 0 : 1;
      }
    }
  }

 private:
  MetaspaceOptions options_;
};

class BpeSuffix final : public Decoder {
 public:
  explicit BpeSuffix(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& tokens) const override {
    if (suffix_.empty()) return;
    for (std::string& token : tokens) {
      const std::string space = &token == &tokens.back() ? "" : " ";
      for (size_t at = 0; (at = token.find(suffix_, at)) != std::string::npos; at += space.size()) {
        token.replace(at, suffix_.size(), space);
      }
    }
  }

 private:
  std::string suffix_;
};

class Sequence final : public Decoder {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Decoder>> parts) : parts_(std::move(parts)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<const Decoder>> parts_;
};

std::unique_ptr<const Decoder> make_sequence(const Json& list, const std::string& where, int depth) {
  if (depth >= kMaxComponentDepth) refuse_component(where, "a Sequence this deep", "16 levels");
  std::vector<std::unique_ptr<const Decoder>> parts;
  for (const Json& part : list) {
    auto made = make_decoder(part, where + ".decoders[" + std::to_string(parts.size()) + "]", depth + 1);
    if (made) parts.push_back(std::move(made));
  }
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const Json& component, const std::string& where, int depth) {
  if (component.is_null()) return nullptr;
  const std::string type = component_type(component, where);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Metaspace") return std::make_unique<Metaspace>(metaspace_options(component, where));
  if (type == "BPEDecoder") return std::make_unique<BpeSuffix>(text_member(component, "suffix", where));
  if (type == "Sequence") return make_sequence(list_member(component, "decoders", where), where, depth);
  if (type == "Replace") {
    const Json* pattern = optional_member(component, "pattern");
    return std::make_unique<Replace>(Expression::from_json(pattern ? *pattern : Json(), where + ".pattern"),
                                     text_member(component, "content", where));
  }
  if (type == "Strip") {
    const std::string content = text_member(component, "content", where);
    if (content.empty() || character_length(content, 0) != content.size()) {
      refuse_component(where, "content \"" + content + "\"", "one character");
    }
    return std::make_unique<Strip>(content, count_member(component, "start", 0, where),
                                   count_member(component, "stop", 0, where));
  }
  refuse_component(where, "decoder \"" + type + "\"", kSupported);
}

}  // namespace vime::text
