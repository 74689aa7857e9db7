#include "spec/print.hpp"

#include "spec/keys.hpp"
#include "spec/values.hpp"

namespace vime::spec {
namespace {

std::string default_text(const Key& key, ExperimentSpec& defaults) {
  if (key.required) return "required";
  if (!key.derived.empty()) return key.derived;
  return "`" + write_value(key.field(defaults)) + "`";
}

std::string values_text(const Key& key) {
  if (key.choices.empty()) return expected_value(key);
  std::string text;
  for (const std::string& choice : key.choices) text += (text.empty() ? "`" : ", `") + choice + "`";
  return text;
}

}  // namespace

std::string to_yaml(const ExperimentSpec& spec) {
  ExperimentSpec copy = spec;  // the table's accessors want something that they may change
  std::string text;
  for (const Section& section : sections()) {
    const std::string indent = section.name.empty() ? "" : "  ";
    if (!section.name.empty()) text += "\n" + section.name + ":\n";
    for (const Key& key : section.keys) text += indent + key.name + ": " + write_value(key.field(copy)) + "\n";
  }
  return text;
}

std::string reference_markdown() {
  ExperimentSpec defaults;
  std::string text =
      "# The experiment spec\n\n"
      "Every key of a `vime` YAML file, printed from the table that the parser uses. Unknown keys and values of "
      "another type are errors.\n"
      "Sizes are whole numbers with B, KiB, MiB, GiB or TiB; durations whole numbers with ms, s, m or h. `null` unsets "
      "a key that may be unset.\n";
  for (const Section& section : sections()) {
    text += "\n## " + (section.name.empty() ? "Top level" : "`" + section.name + "`") + "\n\n";
    if (!section.doc.empty()) text += section.doc + "\n\n";
    text += "| key | values | default | meaning |\n|---|---|---|---|\n";
    for (const Key& key : section.keys) {
      const std::string reason = key.reason.empty() ? "" : " (" + key.reason + ")";
      text += "| `" + key.name + "` | " + values_text(key) + reason + " | " + default_text(key, defaults) + " | " +
              key.doc + " |\n";
    }
  }
  return text;
}

}  // namespace vime::spec
