#include <array>
#include <cctype>

#include "reward/number.hpp"

namespace vime::reward {
namespace {

struct Known {
  std::string_view name;
  std::string_view dimension;
  double factor;
};

// Taken with an SI prefix before them, or without.
constexpr Known kSymbols[] = {
    {"m", "m", 1},     {"g", "g", 1},      {"s", "s", 1},         {"L", "L", 1},       {"l", "L", 1},
    {"W", "W", 1},     {"J", "J", 1},      {"N", "N", 1},         {"Pa", "Pa", 1},     {"Hz", "Hz", 1},
    {"V", "V", 1},     {"A", "A", 1},      {"K", "K", 1},         {"mol", "mol", 1},   {"B", "B", 1},
    {"bit", "bit", 1}, {"eV", "eV", 1},    {"Wh", "J", 3600},     {"cal", "cal", 1},   {"meter", "m", 1},
    {"metre", "m", 1}, {"gram", "g", 1},   {"second", "s", 1},    {"liter", "L", 1},   {"litre", "L", 1},
    {"watt", "W", 1},  {"joule", "J", 1},  {"newton", "N", 1},    {"pascal", "Pa", 1}, {"hertz", "Hz", 1},
    {"volt", "V", 1},  {"ampere", "A", 1}, {"calorie", "cal", 1}, {"byte", "B", 1}};
// Taken as they are.
constexpr Known kFixed[] = {{"min", "s", 60},        {"minute", "s", 60},       {"h", "s", 3600},
                            {"hr", "s", 3600},       {"hour", "s", 3600},       {"day", "s", 86400},
                            {"week", "s", 604800},   {"ft", "m", 0.3048},       {"foot", "m", 0.3048},
                            {"feet", "m", 0.3048},   {"inch", "m", 0.0254},     {"inche", "m", 0.0254},
                            {"mile", "m", 1609.344}, {"mi", "m", 1609.344},     {"yard", "m", 0.9144},
                            {"lb", "g", 453.59237},  {"pound", "g", 453.59237}, {"tonne", "g", 1e6}};

struct Prefix {
  std::string_view symbol;
  std::string_view word;
  double factor;
};
constexpr Prefix kPrefixes[] = {{"n", "nano", 1e-9},  {"u", "micro", 1e-6}, {"µ", "micro", 1e-6}, {"μ", "micro", 1e-6},
                                {"m", "milli", 1e-3}, {"c", "centi", 1e-2}, {"d", "deci", 1e-1},  {"k", "kilo", 1e3},
                                {"M", "mega", 1e6},   {"G", "giga", 1e9},   {"T", "tera", 1e12}};

bool is_word(std::string_view name) {
  return name.size() > 3;
}

std::optional<Unit> lookup(std::string_view word) {
  const auto in = [&](const auto& table, std::string_view name) -> const Known* {
    for (const Known& known : table) {
      if (known.name == name || (is_word(known.name) && name == std::string(known.name) + "s")) return &known;
    }
    return nullptr;
  };
  const auto fixed_plural = [&](std::string_view name) -> const Known* {
    if (name.size() < 3 || name.back() != 's') return nullptr;  // "hrs", "lbs", "mins"
    return in(kFixed, name.substr(0, name.size() - 1));
  };
  if (const Known* known = in(kFixed, word)) return Unit{std::string(known->dimension), known->factor};
  if (const Known* known = in(kSymbols, word)) return Unit{std::string(known->dimension), known->factor};
  if (const Known* known = fixed_plural(word)) return Unit{std::string(known->dimension), known->factor};
  for (const Prefix& prefix : kPrefixes) {
    for (const std::string_view start : {prefix.word, prefix.symbol}) {
      if (word.size() <= start.size() || word.substr(0, start.size()) != start) continue;
      const Known* known = in(kSymbols, word.substr(start.size()));
      // A prefix in letters goes with a symbol, one in words with a name.
      if (known == nullptr || is_word(known->name) != (start == prefix.word)) continue;
      return Unit{std::string(known->dimension), known->factor * prefix.factor};
    }
  }
  return std::nullopt;
}

size_t word_length(std::string_view text) {
  constexpr size_t kLongest = 24;
  size_t length = 0;
  while (length < text.size() && length < kLongest) {
    const unsigned char c = static_cast<unsigned char>(text[length]);
    const bool is_micro = text.substr(length, 2) == "µ" || text.substr(length, 2) == "μ";
    if (!std::isalpha(c) && !is_micro) break;
    length += is_micro ? 2 : 1;
  }
  return length;
}

std::optional<UnitFound> simple_unit(std::string_view text) {
  UnitFound found;
  found.length = word_length(text);
  const std::optional<Unit> unit = lookup(text.substr(0, found.length));
  if (!unit) return std::nullopt;
  found.unit = *unit;
  const std::string_view rest = text.substr(found.length);
  for (const auto& [written, power] : {std::pair<std::string_view, int>{"^2", 2}, {"²", 2}, {"^3", 3}, {"³", 3}}) {
    if (rest.substr(0, written.size()) != written) continue;
    const double factor = found.unit.factor;
    for (int i = 1; i < power; ++i) found.unit.factor *= factor;
    found.unit.dimension += std::to_string(power);
    found.length += written.size();
    break;
  }
  return found;
}

}  // namespace

std::optional<UnitFound> unit_at(std::string_view text) {
  std::optional<UnitFound> found = simple_unit(text);
  if (!found || found->length >= text.size() || text[found->length] != '/') return found;
  const std::optional<UnitFound> below = simple_unit(text.substr(found->length + 1));
  if (!below) return found;
  found->unit.dimension += "/" + below->unit.dimension;
  found->unit.factor /= below->unit.factor;
  found->length += 1 + below->length;
  return found;
}

}  // namespace vime::reward
