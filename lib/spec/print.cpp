#include "spec/print.hpp"

#include "spec/keys.hpp"
#include "spec/values.hpp"

namespace vime::spec {
namespace {

// Where a key of a list's entries takes its default from: "`eval.reward`".
std::string inherited_text(const Section& entry, const Key& key) {
  return "`" + entry.name.substr(0, entry.name.rfind('.') + 1) + key.inherits + "`";
}

std::string default_text(const Section& section, const Key& key, ExperimentSpec& defaults) {
  if (key.required) return "required";
  if (key.sections) return "`[]`";
  if (!key.inherits.empty()) return inherited_text(section, key);
  if (!key.derived.empty()) return key.derived;
  return "`" + write_value(key.field(defaults, 0)) + "`";
}

std::string values_text(const Key& key) {
  if (key.choices.empty()) return expected_value(key);
  std::string text;
  for (const std::string& choice : key.choices) text += (text.empty() ? "`" : ", `") + choice + "`";
  return text;
}

// "  - name: gsm8k" and the entry's other keys below it.
std::string entries_yaml(const SectionList& list, const std::string& indent, ExperimentSpec& spec) {
  std::string text;
  for (size_t entry = 0; entry < list.size(spec); ++entry) {
    std::string mark = "- ";
    for (const Key& key : list.entry().keys) {
      text += indent + mark + key.name + ": " + write_value(key.field(spec, entry)) + "\n";
      mark = "  ";
    }
  }
  return text.empty() ? " []\n" : "\n" + text;
}

std::string table_markdown(const Section& section, ExperimentSpec& defaults) {
  std::string text;
  if (!section.doc.empty()) text += section.doc + "\n\n";
  text += "| key | values | default | meaning |\n|---|---|---|---|\n";
  for (const Key& key : section.keys) {
    const std::string reason = key.reason.empty() ? "" : " (" + key.reason + ")";
    text += "| `" + key.name + "` | " + values_text(key) + reason + " | " + default_text(section, key, defaults) +
            " | " + key.doc + " |\n";
  }
  for (const Key& key : section.keys) {
    if (!key.sections) continue;
    text += "\n### `" + key_path(section, key) + "`\n\n" + table_markdown(key.sections->entry(), defaults);
  }
  return text;
}

}  // namespace

std::string to_yaml(const ExperimentSpec& spec) {
  ExperimentSpec copy = spec;  // the table's accessors want something that they may change
  std::string text;
  for (const Section& section : sections()) {
    const std::string indent = section.name.empty() ? "" : "  ";
    if (!section.name.empty()) text += "\n" + section.name + ":\n";
    for (const Key& key : section.keys) {
      text += indent + key.name + ":";
      text += key.sections ? entries_yaml(*key.sections, indent + "  ", copy)
                           : " " + write_value(key.field(copy, 0)) + "\n";
    }
  }
  return text;
}

std::string reference_markdown() {
  ExperimentSpec defaults = blank_spec();
  std::string text =
      "# The experiment spec\n\n"
      "Every key of a `vime` YAML file, printed from the table that the parser uses. Unknown keys and values of "
      "another type are errors.\n"
      "Sizes are whole numbers with B, KiB, MiB, GiB or TiB; durations whole numbers with ms, s, m or h. `null` unsets "
      "a key that may be unset.\n";
  for (const Section& section : sections()) {
    text += "\n## " + (section.name.empty() ? "Top level" : "`" + section.name + "`") + "\n\n";
    text += table_markdown(section, defaults);
  }
  return text;
}

}  // namespace vime::spec
