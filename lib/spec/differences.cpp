#include "spec/differences.hpp"

#include <algorithm>
#include <utility>

#include "spec/keys.hpp"
#include "spec/values.hpp"

namespace vime::spec {
namespace {

std::string entries_text(size_t count) {
  return std::to_string(count) + (count == 1 ? " entry" : " entries");
}

class Comparison {
 public:
  // Copies: the table's accessors want something that they may change.
  Comparison(ExperimentSpec before, ExperimentSpec now) : before_(std::move(before)), now_(std::move(now)) {}

  std::vector<Difference> run() {
    for (const Section& section : sections()) {
      for (const Key& key : section.keys) {
        const std::string path = key_path(section, key);
        if (key.sections) {
          compare_entries(*key.sections, path);
        } else {
          note(path, write_value(key.field(before_, 0)), write_value(key.field(now_, 0)));
        }
      }
    }
    return std::move(found_);
  }

 private:
  void note(const std::string& path, const std::string& before, const std::string& now) {
    if (before != now) found_.push_back({path, before, now});
  }

  void compare_entries(const SectionList& list, const std::string& path) {
    const size_t before = list.size(before_), now = list.size(now_);
    note(path, entries_text(before), entries_text(now));
    for (size_t entry = 0; entry < std::min(before, now); ++entry) {
      for (const Key& key : list.entry().keys) {
        note(entry_path(path, entry) + "." + key.name, write_value(key.field(before_, entry)),
             write_value(key.field(now_, entry)));
      }
    }
  }

  ExperimentSpec before_, now_;
  std::vector<Difference> found_;
};

}  // namespace

std::vector<Difference> differences(const ExperimentSpec& before, const ExperimentSpec& now) {
  return Comparison(before, now).run();
}

}  // namespace vime::spec
