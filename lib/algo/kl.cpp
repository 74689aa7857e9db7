#include "algo/kl.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::algo {
namespace {

constexpr double kLowVarBound = 10.0;

struct Named {
  const char* name;
  KlType type;
};
constexpr Named kTypes[] = {
    {"k1", KlType::k1}, {"k2", KlType::k2}, {"k3", KlType::k3}, {"low_var_kl", KlType::low_var_kl}};

// expm1 keeps the digits that exp(-d) - 1 loses near d = 0, where KL estimates live.
ValueAndSlope k3(double d) {
  const double e = std::expm1(-d);
  return {e + d, -e};
}

}  // namespace

std::vector<std::string> kl_type_names() {
  std::vector<std::string> names;
  for (const Named& named : kTypes) names.emplace_back(named.name);
  return names;
}

KlType parse_kl_type(const std::string& name) {
  for (const Named& named : kTypes) {
    if (name == named.name) return named.type;
  }
  const std::string near = nearest_name(name, kl_type_names());
  throw Error(ErrorKind::refused,
              "KL type: expected one of " + join(kl_type_names(), ", ") + ", found \"" + name + "\"",
              near.empty() ? "" : "did you mean \"" + near + "\"?");
}

ValueAndSlope kl_estimate(KlType type, double logprob, double base) {
  const double d = logprob - base;
  switch (type) {
    case KlType::k1:
      return {d, 1.0};
    case KlType::k2:
      return {0.5 * d * d, d};
    case KlType::k3:
      return k3(d);
    case KlType::low_var_kl: {
      const ValueAndSlope plain = k3(d);
      if (plain.value > kLowVarBound) return {kLowVarBound, 0.0};  // k3 is never negative: the lower bound cannot bind
      return plain;
    }
  }
  VIME_CHECK(false, "unknown KL type");
  return {};
}

}  // namespace vime::algo
