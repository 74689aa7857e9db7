// The one table of all keys: name, field, type, limits and meaning. Parser, printer, error texts and docs/spec.md all
// come from it.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "spec/spec.hpp"

namespace vime::spec {

// Where a key's value is kept; the alternative is the key's type.
using Field = std::variant<bool*, int64_t*, double*, std::string*, Bytes*, milliseconds*, std::vector<int64_t>*,
                           std::vector<std::string>*, std::optional<int64_t>*, std::optional<double>*,
                           std::optional<std::string>*>;

// The allowed range of a number, of a size in bytes, of a duration in milliseconds, or of each item of a list.
struct Limits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_excluded = false;
  bool most_excluded = false;

  bool contain(double value) const {
    return (least_excluded ? value > least : value >= least) && (most_excluded ? value < most : value <= most);
  }
};

struct Section;

// The value of a key that holds a list of sections: how many entries a spec has, and the keys of each.
struct SectionList {
  const Section& (*entry)();  // named by the list's path ("eval.datasets")
  size_t (*size)(const ExperimentSpec&);
  void (*resize)(ExperimentSpec&, size_t count);
};

struct Key {
  std::string name;
  // Null for a list of sections. `entry` is the number of the section within a list of them; other keys ignore it.
  Field (*field)(ExperimentSpec&, size_t entry) = nullptr;
  std::string doc;  // one line
  Limits limits = {};
  std::vector<std::string> choices = {};  // of a text key; empty = any text
  std::string reason = "";                // why the range or the choice is narrow in this version
  std::string derived = "";               // where the default depends on other keys: the rule, for the reference
  bool required = false;                  // and a list may not be empty
  bool one_stands_for_list = false;       // of a list of texts: a single text is a list of one
  std::optional<SectionList> sections = {};
  std::string inherits = "";  // of an entry's key: the key of the section around the list that gives the default
};

struct Section {
  std::string name;  // "" = the top level
  std::string doc;
  std::vector<Key> keys;
};

// In the order in which they are printed; the top level first.
const std::vector<Section>& sections();

const Section* find_section(const std::string& name);
const Key* find_key(const Section& section, const std::string& name);

// The defaults, with one entry in every list of sections: every key has a field in it.
ExperimentSpec blank_spec();

// "trainer.lr"; the bare name at the top level.
std::string key_path(const Section& section, const Key& key);
// "eval.datasets[2]"; its keys follow after a dot.
std::string entry_path(const std::string& list_path, size_t entry);

}  // namespace vime::spec
