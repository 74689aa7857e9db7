#include "spec/load.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "spec/checks.hpp"
#include "spec/keys.hpp"
#include "spec/problems.hpp"
#include "spec/unknown_keys.hpp"
#include "spec/values.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

// Moves one tree (the file's, or that of an override) into the spec.
class TreeReader {
 public:
  TreeReader(const Source& source, int source_number, ExperimentSpec& spec, Problems& problems)
      : source_(source), source_number_(source_number), spec_(spec), problems_(problems) {}

  void read_top(const YamlNode& root) {
    for (const YamlEntry& entry : root.entries) {
      const Section* section = entry.key.empty() ? nullptr : find_section(entry.key);
      if (section != nullptr) {
        read_section(*section, entry);
      } else {
        read_key(sections().front(), entry);
      }
    }
  }

 private:
  Place place(Mark mark) const {
    return {source_number_, mark.line, mark.column, source_.place(mark.line, mark.column)};
  }

  void read_section(const Section& section, const YamlEntry& entry) {
    // Overrides have no place for what is missing from a section.
    if (source_number_ == 0) problems_.note_given(section.name, place(entry.mark));
    if (entry.value.kind == YamlNode::Kind::null) return;  // a section whose keys are all commented out
    if (entry.value.kind != YamlNode::Kind::mapping) {
      problems_.add(place(entry.value.mark), quoted(section.name) + " must be a section of keys (\"" +
                                                 section.keys.front().name + ": ...\"), found " +
                                                 describe(entry.value));
      for (const Key& key : section.keys) problems_.mark_wrong(key_path(section, key));
      return;
    }
    for (const YamlEntry& inner : entry.value.entries) read_key(section, inner);
  }

  void read_key(const Section& section, const YamlEntry& entry) {
    const Key* key = find_key(section, entry.key);
    if (key == nullptr) {
      if (problems_.many()) return problems_.add(place(entry.mark), "");
      const UnknownKey unknown = explain_unknown_key(section, entry.key);
      problems_.add(place(entry.mark), unknown.message);
      if (!unknown.meant_path.empty()) mark_meant(unknown.meant_path);
      return;
    }
    const std::string path = key_path(section, *key);
    if (key->sections) return read_entries(*key, path, entry.value);
    read_field(*key, path, entry.value, 0);
  }

  // Whether the value can be used.
  bool read_field(const Key& key, const std::string& path, const YamlNode& node, size_t entry) {
    problems_.note_given(path, place(node.mark));
    const std::string wrong = read_value(key, node, key.field(spec_, entry));
    if (!wrong.empty()) problems_.add_at(path, quoted(path) + " " + wrong);
    return wrong.empty();
  }

  // The entries of an earlier source are replaced, not added to.
  void read_entries(const Key& key, const std::string& path, const YamlNode& node) {
    problems_.forget_entries(path);
    problems_.note_given(path, place(node.mark));
    key.sections->resize(spec_, 0);
    if (node.kind == YamlNode::Kind::null) return;  // all entries are commented out
    if (node.kind != YamlNode::Kind::list) {
      return problems_.add_at(path, quoted(path) + " must be " + expected_value(key) + ", found " + describe(node));
    }
    key.sections->resize(spec_, node.items.size());
    bool sound = true;
    for (size_t entry = 0; entry < node.items.size(); ++entry) {
      sound = read_entry(key.sections->entry(), entry_path(path, entry), node.items[entry], entry) && sound;
    }
    if (!sound) problems_.mark_wrong(path);
  }

  bool read_entry(const Section& section, const std::string& path, const YamlNode& node, size_t entry) {
    problems_.note_given(path, place(node.mark));
    if (node.kind != YamlNode::Kind::mapping) {
      problems_.add_at(path, quoted(path) + " must be a section of keys (\"" + section.keys.front().name +
                                 ": ...\"), found " + describe(node));
      for (const Key& key : section.keys) problems_.mark_wrong(path + "." + key.name);
      return false;
    }
    bool sound = true;
    for (const YamlEntry& inner : node.entries) {
      const Key* key = find_key(section, inner.key);
      if (key != nullptr) {
        sound = read_field(*key, path + "." + key->name, inner.value, entry) && sound;
        continue;
      }
      sound = false;
      if (problems_.many()) {
        problems_.add(place(inner.mark), "");
        continue;
      }
      const UnknownKey unknown = explain_unknown_key(section, inner.key);
      problems_.add(place(inner.mark), unknown.message);
      const bool here = unknown.meant_path.rfind(section.name + ".", 0) == 0;
      if (here) problems_.mark_wrong(path + unknown.meant_path.substr(section.name.size()));
    }
    return sound;
  }

  // A misspelt key is not reported as missing too; a misspelt section hides all its keys.
  void mark_meant(const std::string& path) {
    problems_.mark_wrong(path);
    const Section* section = find_section(path);
    if (section == nullptr) return;
    for (const Key& key : section->keys) problems_.mark_wrong(key_path(*section, key));
  }

  const Source& source_;
  int source_number_;
  ExperimentSpec& spec_;
  Problems& problems_;
};

void read_file(const Source& source, ExperimentSpec& spec, Problems& problems) {
  const YamlNode root = parse_yaml(source);
  if (root.kind == YamlNode::Kind::null) {
    throw Error(
        ErrorKind::refused,
        source.place(1, 1) + ": the file is empty; expected the sections of an experiment spec (model, data, ...)");
  }
  if (root.kind != YamlNode::Kind::mapping) {
    throw Error(ErrorKind::refused, source.place(root.mark.line, root.mark.column) +
                                        ": expected sections (\"model:\", \"data:\", ...), found " + describe(root));
  }
  TreeReader(source, 0, spec, problems).read_top(root);
}

// How errors name an override: cut where it is long, and without anything that would move a terminal's cursor.
std::string shown_override(const std::string& text) {
  std::string shown = text.substr(0, 100);
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return "--set " + shown + (text.size() > shown.size() ? "..." : "");
}

// "trainer.lr=1e-3" becomes the tree {trainer: {lr: 1e-3}}.
void read_override(const std::string& text, int number, ExperimentSpec& spec, Problems& problems) {
  const std::string shown = shown_override(text);
  const Place place{number, 1, 1, shown};
  const size_t equals = text.find('=');
  const std::vector<std::string> path = split(text.substr(0, equals), '.');
  bool named = equals != std::string::npos && path.size() <= 2;
  for (const std::string& part : path) named = named && !part.empty();
  if (!named) return problems.add(place, "expected section.key=value");
  Source source;
  YamlEntry entry{path.back(), {}, {}};
  try {
    source = make_source(shown, text.substr(equals + 1), false);
    entry.value = parse_yaml(source);
  } catch (const Error& error) {
    return problems.add(
        place, error.message().substr(shown.size() + 2));  // the place is added once more with the other problems
  }
  if (path.size() == 2) {
    YamlNode section;
    section.kind = YamlNode::Kind::mapping;
    section.entries.push_back(std::move(entry));
    entry = {path.front(), {}, std::move(section)};
  }
  YamlNode root;
  root.kind = YamlNode::Kind::mapping;
  root.entries.push_back(std::move(entry));
  TreeReader(source, number, spec, problems).read_top(root);
}

void require_key(const Key& key, const std::string& path, Problems& problems) {
  if (!key.required || problems.is_given(path) || !problems.sound({path.c_str()})) return;
  problems.add_at(path, quoted(path) + " is missing; expected " + expected_value(key));
}

void require_keys(const ExperimentSpec& spec, Problems& problems) {
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      const std::string path = key_path(section, key);
      require_key(key, path, problems);
      for (size_t entry = 0; key.sections && entry < key.sections->size(spec); ++entry) {
        for (const Key& inner : key.sections->entry().keys) {
          require_key(inner, entry_path(path, entry) + "." + inner.name, problems);
        }
      }
    }
  }
}

}  // namespace

ExperimentSpec parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides,
                     const FindGpus& find_gpus) {
  ExperimentSpec spec;
  Problems problems(name);
  read_file(make_source(name, text), spec, problems);
  int number = 0;
  for (const std::string& one : overrides) read_override(one, ++number, spec, problems);
  require_keys(spec, problems);
  Machine machine{{{}, "no GPUs were looked for"}};
  if (spec.placement.device != "cpu" && find_gpus) machine.found = find_gpus();
  derive_values(spec, problems, machine);
  check_spec(spec, problems, machine);
  problems.throw_if_any();
  return spec;
}

ExperimentSpec read_resolved(const std::string& text, const std::string& name) {
  ExperimentSpec spec;
  Problems problems(name);
  read_file(make_source(name, text), spec, problems);
  problems.throw_if_any();
  return spec;
}

ExperimentSpec load_resolved(const fs::path& file) {
  return read_resolved(read_spec_file(file), file.string());
}

ExperimentSpec load(const fs::path& file, const std::vector<std::string>& overrides, const FindGpus& find_gpus) {
  return parse(read_spec_file(file), file.string(), overrides, find_gpus);
}

}  // namespace vime::spec
