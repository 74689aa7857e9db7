#include "sweep/own_keys.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <type_traits>
#include <variant>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "spec/differences.hpp"
#include "spec/keys.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::sweep {
namespace {

void change(bool& value) {
  value = !value;
}
void change(std::string& value) {
  value += "x";
}
void change(spec::Bytes& value) {
  ++value.count;
}
void change(std::chrono::milliseconds& value) {
  ++value;
}
template <typename Number>
requires std::is_arithmetic_v<Number>
void change(Number& value) {
  value += Number{1};
}
template <typename Value>
void change(std::vector<Value>& values) {
  values.emplace_back();
}
template <typename Value>
void change(std::optional<Value>& value) {
  if (!value) value.emplace();
  change(*value);
}

// The spec with another value of this key. It need not be one that a user could give.
spec::ExperimentSpec with_another(spec::ExperimentSpec spec, const spec::Key& key) {
  if (key.sections) {
    key.sections->resize(spec, key.sections->size(spec) + 1);
  } else {
    std::visit([](auto* value) { change(*value); }, key.field(spec, 0));
  }
  return spec;
}

struct NamedKey {
  std::string name;  // "trainer.lr"
  const spec::Key* key = nullptr;
};

// What an override names, which the spec has read already: a key, or with "trainer={lr: 1}" those of a section.
std::vector<NamedKey> keys_of(const std::string& override_text) {
  const size_t equals = override_text.find('=');
  const std::string name = override_text.substr(0, equals);
  const std::vector<std::string> path = split(name, '.');
  const spec::Section* section = spec::find_section(path.front());
  if (path.size() == 2) return {{name, spec::find_key(*section, path.back())}};
  if (section == nullptr) return {{name, spec::find_key(spec::sections().front(), name)}};
  std::vector<NamedKey> keys;
  for (const spec::YamlEntry& entry :
       spec::parse_yaml(spec::make_source(name, override_text.substr(equals + 1), false)).entries) {
    keys.push_back({name + "." + entry.key, spec::find_key(*section, entry.key)});
  }
  return keys;
}

}  // namespace

void require_effect(const std::vector<std::string>& overrides, const spec::ExperimentSpec& base,
                    const std::vector<Leg>& legs, const LegSettings& settings) {
  std::vector<std::string> without;
  for (const std::string& one : overrides) {
    for (const auto& [name, key] : keys_of(one)) {
      const spec::ExperimentSpec changed = with_another(base, *key);
      const bool matters = std::any_of(legs.begin(), legs.end(), [&](const Leg& leg) {
        return !spec::differences(leg_spec(base, leg, settings), leg_spec(changed, leg, settings)).empty();
      });
      if (!matters && std::find(without.begin(), without.end(), name) == without.end()) without.push_back(name);
    }
  }
  if (without.empty()) return;
  throw Error(ErrorKind::refused,
              "--set " + join(without, ", ") + ": the sweep sets " + (without.size() == 1 ? "this key" : "these keys") +
                  " itself, leg by leg",
              "leave it out; model, algorithm, seed, trainer.max_tokens_per_gpu and the like can be set");
}

}  // namespace vime::sweep
