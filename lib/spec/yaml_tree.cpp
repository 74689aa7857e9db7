#include "spec/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/json.hpp"

namespace vime::spec {
namespace {

constexpr size_t kMaxDepth = 8;
constexpr const char* kQuoteSlices = "; a file with a slice (x.jsonl@[0:10]) must be quoted inside [] and {}";

// Builds the tree from the parser's events. Working on events, not on yaml-cpp's nodes, keeps duplicate keys visible
// and means that aliases are refused before anything is expanded.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const Source& source) : source_(source) {}

  YamlNode take_root() { return std::move(root_); }

  [[noreturn]] void refuse(Mark mark, const std::string& message) const {
    throw Error(ErrorKind::refused, source_.place(mark.line, mark.column) + ": " + message);
  }

  Mark mark_of(const YAML::Mark& mark) const {
    if (mark.is_null()) return {};
    return {mark.line + 1, source_.column(mark.line, mark.column)};
  }

  [[noreturn]] void refuse_alias(const YAML::Mark& mark) const {
    refuse(mark_of(mark), "anchors and aliases (& and *) are not part of a spec; write the value out");
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) refuse(mark_of(mark), "a second YAML document begins here; a spec is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    place_value(YamlNode::Kind::null, mark, "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_alias(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    const bool is_quoted = tag == "!";  // yaml-cpp: "?" plain, "!" quoted or block, else what was written
    if (!is_quoted) refuse_tag(mark, tag);
    if (is_quoted && !closes(mark)) refuse(mark_of(mark), "the quote that begins here is never closed");
    place_value(is_quoted ? YamlNode::Kind::quoted : YamlNode::Kind::plain, mark, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::mapping, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    bool expects_value = false;       // mapping: a key was read
    std::map<std::string, int> keys;  // mapping: line of each key
  };

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse_alias(mark);
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?")
      refuse(mark_of(mark), "tags (" + quoted(tag) + ") are not part of a spec; types come from the keys");
  }

  // yaml-cpp takes a quote that is still open at the end of the file for closed when a line end comes last.
  bool closes(const YAML::Mark& mark) const {
    const std::vector<std::string>& lines = source_.lines;
    size_t line = static_cast<size_t>(mark.line), at = static_cast<size_t>(mark.column);
    if (line >= lines.size() || at >= lines[line].size()) return true;
    const char quote = lines[line][at];
    if (quote != '"' && quote != '\'') return true;  // a block of text
    for (++at; line < lines.size(); ++line, at = 0) {
      for (; at < lines[line].size(); ++at) {
        if (quote == '"' && lines[line][at] == '\\') {
          ++at;
        } else if (lines[line][at] == quote) {
          const bool doubled = quote == '\'' && at + 1 < lines[line].size() && lines[line][at + 1] == quote;
          if (!doubled) return true;
          ++at;  // two single quotes stand for one
        }
      }
    }
    return false;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag == "!" ? "" : tag);
    if (stack_.size() == kMaxDepth) {
      refuse(mark_of(mark),
             "nested deeper than " + std::to_string(kMaxDepth) + " levels; a spec has sections, keys and lists only");
    }
    if (expects_key())
      refuse(mark_of(mark),
             "not valid YAML: a list or mapping stands where the name of a key is expected; is a bracket left open?");
    Open opened;
    opened.node.kind = kind;
    opened.node.mark = mark_of(mark);
    stack_.push_back(std::move(opened));
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    attach(std::move(node));
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back().node.kind == YamlNode::Kind::mapping && !stack_.back().expects_value;
  }

  void place_value(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& text) {
    if (expects_key()) {
      begin_entry(kind, mark_of(mark), text);
      return;
    }
    YamlNode node;
    node.kind = kind;
    node.mark = mark_of(mark);
    node.text = text;
    attach(std::move(node));
  }

  void begin_entry(YamlNode::Kind kind, Mark mark, const std::string& key) {
    if (kind == YamlNode::Kind::null) refuse(mark, "a key is missing here (expected \"key: value\")");
    if (kind == YamlNode::Kind::plain && key == "<<") {
      refuse(mark, "merge keys (<<) are not part of a spec; write the keys out");
    }
    Open& mapping = stack_.back();
    const auto [first, added] = mapping.keys.emplace(key, mark.line);
    if (!added) refuse(mark, "duplicate key " + quoted(key) + ", given first in line " + std::to_string(first->second));
    mapping.expects_value = true;
    mapping.node.entries.push_back({key, mark, {}});
  }

  void attach(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    YamlEntry& entry = parent.node.entries.back();
    if (node.kind == YamlNode::Kind::null)
      node.mark = entry.mark;  // yaml-cpp has no useful mark for a value that is not there
    entry.value = std::move(node);
    parent.expects_value = false;
  }

  const Source& source_;
  YamlNode root_;
  std::vector<Open> stack_;
  int documents_ = 0;
};

// yaml-cpp's messages in words that help; those not listed are passed on.
std::string syntax_error(const std::string& message) {
  static const std::map<std::string, std::string> words{
      {"end of map flow not found", "a \"{\" is not closed"},
      {"end of sequence flow not found", "a \"[\" is not closed"},
      {"end of map not found",
       "this does not continue the keys above it (indentation, or something left over behind a value)"},
      {"end of sequence not found", "this does not continue the list above it"},
      {"illegal map value", "a \": \" where no key can be; text that holds one must be quoted"},
      {"unknown token", "a character that no value begins with; text must be quoted"},
      {"illegal EOF in scalar", "a quote is not closed"},
  };
  const auto found = words.find(message);
  return "not valid YAML: " + (found == words.end() ? message : found->second);
}

}  // namespace

std::string quoted(const std::string& text) {
  constexpr size_t kShown = 60;
  const std::string shown = text.size() > kShown ? text.substr(0, kShown) : text;
  const std::string escaped = Json(shown).dump(-1, ' ', false, Json::error_handler_t::ignore);
  return text.size() > kShown ? escaped + "..." : escaped;
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::plain:
      return quoted(node.text);
    case YamlNode::Kind::quoted:
      return "the quoted text " + quoted(node.text);
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::mapping:
      return "a mapping";
  }
  return "";
}

YamlNode parse_yaml(const Source& source) {
  TreeBuilder builder(source);
  try {
    std::istringstream in(source.text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const bool unknown_alias = error.msg.find("anchor") != std::string::npos;
    if (unknown_alias) builder.refuse_alias(error.mark);
    const bool slice = source.text.find("@[") != std::string::npos;
    builder.refuse(builder.mark_of(error.mark), syntax_error(error.msg) + (slice ? kQuoteSlices : ""));
  }
  return builder.take_root();
}

}  // namespace vime::spec
