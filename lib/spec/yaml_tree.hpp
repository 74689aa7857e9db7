// YAML text as a tree that knows where everything was written. Refuses, each with one sentence and its place: several
// documents, duplicate keys, keys that are no text, anchors and aliases, merge keys, tags, and nesting deeper than any
// spec has.
#pragma once

#include <string>
#include <vector>

#include "spec/source.hpp"

namespace vime::spec {

struct Mark {
  int line = 1;    // from 1
  int column = 1;  // from 1, in characters
};

struct YamlEntry;

struct YamlNode {
  enum class Kind { null, plain, quoted, list, mapping };
  Kind kind = Kind::null;
  Mark mark;
  std::string text;                // plain and quoted
  std::vector<YamlNode> items;     // list
  std::vector<YamlEntry> entries;  // mapping, in order
};

struct YamlEntry {
  std::string key;
  Mark mark;  // of the key
  YamlNode value;
};

// What a node is, for errors: "true", the text "5" in quotes, "a list", "a mapping", "nothing".
std::string describe(const YamlNode& node);

// Text in double quotes, control characters escaped, cut after 60 bytes: safe to print.
std::string quoted(const std::string& text);

// The only document; Kind::null when there is none. Throws Error{refused} at the first fault of syntax.
YamlNode parse_yaml(const Source& source);

}  // namespace vime::spec
