#include "algo/lr_schedule.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "base/error.hpp"

using namespace vime;
using namespace vime::algo;

TEST_CASE("the warm-up rises in equal parts to the full rate and wastes no step") {
  const LrSchedule schedule{LrDecayStyle::constant, 4e-3, 0.0, 4, 0};
  CHECK(schedule.at(0) == doctest::Approx(1e-3).epsilon(1e-15));
  CHECK(schedule.at(1) == doctest::Approx(2e-3).epsilon(1e-15));
  CHECK(schedule.at(3) == 4e-3);
  CHECK(schedule.at(4) == 4e-3);
  CHECK(schedule.at(1000000) == 4e-3);
}

TEST_CASE("the linear decay goes from the full rate after the warm-up to the least one") {
  const LrSchedule schedule{LrDecayStyle::linear, 1.0, 0.2, 2, 10};
  CHECK(schedule.at(1) == 1.0);
  CHECK(schedule.at(2) == 1.0);
  CHECK(schedule.at(6) == doctest::Approx(0.6).epsilon(1e-15));  // half way: (1 + 0.2) / 2
  CHECK(schedule.at(9) == doctest::Approx(0.3).epsilon(1e-15));
  CHECK(schedule.at(10) == 0.2);
  CHECK(schedule.at(11) == 0.2);
}

TEST_CASE("the cosine decay is half way down at half time and flat at both ends") {
  const LrSchedule schedule{LrDecayStyle::cosine, 1.0, 0.0, 0, 100};
  CHECK(schedule.at(0) == 1.0);
  CHECK(schedule.at(50) == doctest::Approx(0.5).epsilon(1e-15));
  CHECK(schedule.at(25) == doctest::Approx(0.5 + std::sqrt(0.5) / 2).epsilon(1e-15));
  CHECK(1.0 - schedule.at(1) < 1e-3);
  CHECK(schedule.at(99) < 1e-3);
  CHECK(schedule.at(100) == 0.0);
}

TEST_CASE("without steps to decay over, or with a warm-up that takes them all, the rate stays") {
  CHECK(LrSchedule{LrDecayStyle::cosine, 1.0, 0.0, 0, 0}.at(7) == 1.0);
  CHECK(LrSchedule{LrDecayStyle::linear, 1.0, 0.0, 10, 10}.at(12) == 1.0);
}

TEST_CASE("every schedule has a name and a misspelt one is refused with the nearest") {
  for (const std::string& name : lr_decay_style_names()) {
    CHECK(lr_decay_style_names()[static_cast<size_t>(parse_lr_decay_style(name))] == name);
  }
  try {
    parse_lr_decay_style("cosin");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.hint() == "did you mean \"cosine\"?");
  }
}
