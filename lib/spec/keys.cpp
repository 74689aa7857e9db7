#include "spec/keys.hpp"

#include "spec/key_table.hpp"

namespace vime::spec {

const std::vector<Section>& sections() {
  static const std::vector<Section> all{table::top_level(),  table::model(),       table::data(),      table::reward(),
                                        table::placement(),  table::trainer(),     table::algorithm(), table::rollout(),
                                        table::engine(),     table::weight_sync(), table::offload(),   table::eval(),
                                        table::checkpoint(), table::debug(),       table::ci()};
  return all;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : sections()) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

const Key* find_key(const Section& section, const std::string& name) {
  for (const Key& key : section.keys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string key_path(const Section& section, const Key& key) {
  return section.name.empty() ? key.name : section.name + "." + key.name;
}

std::string entry_path(const std::string& list_path, size_t entry) {
  return list_path + "[" + std::to_string(entry) + "]";
}

ExperimentSpec blank_spec() {
  ExperimentSpec spec;
  for (const Section& section : sections()) {
    for (const Key& key : section.keys) {
      if (key.sections) key.sections->resize(spec, 1);
    }
  }
  return spec;
}

}  // namespace vime::spec
