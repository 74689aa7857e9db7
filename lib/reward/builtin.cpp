#include "reward/builtin.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "reward/verifiers.hpp"

namespace vime::reward {
namespace {

using Formula = std::optional<double> (*)(std::string_view response, std::string_view label);

template <double (*formula)(std::string_view, std::string_view)>
std::optional<double> always(std::string_view response, std::string_view label) {
  return formula(response, label);
}

struct Named {
  const char* name;
  Formula formula;
  const char* wanted_label;
};
constexpr Named kFormulas[] = {{"position_match", always<position_match>, ""},
                               {"exact_match", always<exact_match>, ""},
                               {"numeric", numeric, "a number"},
                               {"boxed", boxed, "a text that is not empty"},
                               {"f1", always<f1>, ""},
                               {"choice", choice, "a letter from A to J"}};

// Names that users of other trainers will try.
const std::map<std::string, std::string> kElsewhere{
    {"math", "boxed"},     {"deepscaler", "boxed"},       {"dapo", "boxed"},
    {"gpqa", "choice"},    {"multiple_choice", "choice"}, {"gsm8k", "numeric"},
    {"remote_rm", "http"}, {"custom", "command"}};

std::string quoted_start(const std::string& text) {
  return "\"" + (text.size() > 40 ? text.substr(0, 40) + "...\"" : text + "\"");
}

}  // namespace

struct Builtins::State {
  std::optional<Regex> fixed;
};

Builtins::Builtins(const std::string& pattern) : state_(std::make_unique<State>()) {
  if (!pattern.empty()) state_->fixed.emplace(pattern);
}
Builtins::~Builtins() = default;
Builtins::Builtins(Builtins&&) noexcept = default;

Score Builtins::score(const std::string& type, const ScoreItem& item) const {
  for (const Named& named : kFormulas) {
    if (type != named.name) continue;
    const std::optional<double> value = named.formula(item.response, item.label);
    if (value) return score_of(*value);
    return no_score(Missing::bad_label, "sample " + std::to_string(item.sample) + ": reward \"" + type + "\" expects " +
                                            named.wanted_label + " as label, found " + quoted_start(item.label));
  }
  VIME_CHECK(type == "regex", "\"" + type + "\" is no built-in reward");
  if (state_->fixed) return state_->fixed->score(item.response, item.label);
  try {
    return Regex(item.label).score(item.response, std::nullopt);
  } catch (const Error& error) {
    return no_score(Missing::bad_label, "label of sample " + std::to_string(item.sample) + ": " + error.message());
  }
}

const std::vector<std::string>& builtin_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Named& named : kFormulas) list.emplace_back(named.name);
    list.emplace_back("regex");
    return list;
  }();
  return names;
}

bool is_builtin(const std::string& type) {
  return std::find(builtin_names().begin(), builtin_names().end(), type) != builtin_names().end();
}

void refuse_type(const std::string& what, const std::string& type, bool builtins_only) {
  std::vector<std::string> names = builtin_names();
  if (!builtins_only) names.insert(names.end(), {"command", "http"});
  const auto elsewhere = kElsewhere.find(type);
  const std::string near = elsewhere != kElsewhere.end() ? elsewhere->second : nearest_name(type, names);
  throw Error(ErrorKind::refused, what + ": expected one of " + join(names, ", ") + ", found \"" + type + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

}  // namespace vime::reward
