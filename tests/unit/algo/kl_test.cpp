#include "algo/kl.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "base/error.hpp"

using namespace vime::algo;

TEST_CASE("the KL estimators have their closed forms") {
  for (double d : {-1.5, -0.2, 0.0, 0.3, 2.0}) {
    const double base = -1.0;
    CHECK(kl_estimate(KlType::k1, base + d, base).value == doctest::Approx(d));
    CHECK(kl_estimate(KlType::k2, base + d, base).value == doctest::Approx(d * d / 2));
    CHECK(kl_estimate(KlType::k3, base + d, base).value == doctest::Approx(std::exp(-d) - 1 + d));
    CHECK(kl_estimate(KlType::low_var_kl, base + d, base).value == doctest::Approx(std::exp(-d) - 1 + d));
  }
}

TEST_CASE("the KL estimators' slopes agree with central differences") {
  const double h = 1e-5;  // error of the difference about h^2 times the third derivative: 1e-9 here
  for (KlType type : {KlType::k1, KlType::k2, KlType::k3, KlType::low_var_kl}) {
    for (double logprob : {-3.0, -1.1, -0.4, -0.01}) {
      const double up = kl_estimate(type, logprob + h, -1.0).value;
      const double down = kl_estimate(type, logprob - h, -1.0).value;
      CHECK(kl_estimate(type, logprob, -1.0).slope == doctest::Approx((up - down) / (2 * h)).epsilon(1e-7));
    }
  }
}

TEST_CASE("low_var_kl is bounded and flat beyond its bound") {
  const auto far = kl_estimate(KlType::low_var_kl, -50.0, 0.0);
  CHECK(far.value == 10.0);
  CHECK(far.slope == 0.0);
  CHECK(kl_estimate(KlType::k3, -50.0, 0.0).value > 1e20);
}

TEST_CASE("k3 keeps its digits close to zero") {
  // d^2 / 2 is the leading term; exp(-d) - 1 + d evaluated literally loses all digits here.
  CHECK(kl_estimate(KlType::k3, -1.0 + 0x1p-20, -1.0).value == doctest::Approx(0x1p-41).epsilon(1e-3));
}

TEST_CASE("an unknown KL type is refused with the nearest name") {
  for (const std::string& name : kl_type_names()) CHECK_NOTHROW(parse_kl_type(name));
  try {
    parse_kl_type("low_var");
    FAIL("accepted");
  } catch (const vime::Error& e) {
    CHECK(e.hint() == "did you mean \"low_var_kl\"?");
  }
}
