// What the log-probs of a fixed text give away: other weights, a part of them, weights from before.
#include "loop/logprob_probe.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "base/random.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

constexpr std::size_t kCount = 184;

double normal(uint64_t stream, std::size_t i) {
  const double u = uniform01(mix_key(stream, i, 1)), v = uniform01(mix_key(stream, i, 2));
  return std::sqrt(-2.0 * std::log(u + 1e-12)) * std::cos(6.283185307179586 * v);
}

// Log-probs around -6 that differ among themselves by `spread`.
std::vector<double> values(uint64_t stream, double spread) {
  std::vector<double> result;
  for (std::size_t i = 0; i < kCount; ++i) result.push_back(-6.0 + spread * normal(stream, i));
  return result;
}

std::vector<double> plus(std::vector<double> values, uint64_t stream, double size) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += size * normal(stream, i);
  return values;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an engine that is off by its arithmetic alone is right, a flat model's too") {
  for (const double spread : {2.0, 0.05}) {
    const std::vector<double> trainer = values(1, spread);
    CHECK(probe_problem({trainer, {}}, {plus(trainer, 2, 0.05 * spread), {}}, 0.2).text == "");
  }
}

TEST_CASE("other weights, and a part of them, are found by how much log-probs differ among themselves") {
  for (const double spread : {2.0, 0.05}) {
    const std::vector<double> trainer = values(1, spread);
    CHECK(says(probe_problem({trainer, {}}, {values(3, spread), {}}, 100.0).text,
               "does not compute with the trainer's weights"));
    CHECK(says(probe_problem({trainer, {}}, {plus(trainer, 3, 0.5 * spread), {}}, 100.0).text, "than a quarter"));
  }
  const std::vector<double> trainer = values(1, 2.0);
  CHECK(probe_problem({trainer, {}}, {plus(trainer, 2, 0.1), {}}, 0.02).of_arithmetic);
  CHECK_FALSE(probe_problem({trainer, {}}, {values(3, 2.0), {}}, 0.02).of_arithmetic);
  CHECK(says(probe_problem({trainer, {}}, {plus(trainer, 2, 0.1), {}}, 0.02).text, "in the mean, allowed 0.02"));
}

TEST_CASE("an engine that stayed behind is found however small the step was") {
  for (const double step : {1.0, 1e-3, 1e-4}) {
    const std::vector<double> before = values(1, 2.0);
    const std::vector<double> now = plus(before, 4, step);
    const std::vector<double> engine_before = plus(before, 2, 1e-2);
    // The same arithmetic errors again, or the very same numbers.
    const std::string problem = probe_problem({now, before}, {engine_before, engine_before}, 100.0).text;
    CHECK(says(problem, step == 1.0 ? "more than a quarter" : "still on weights from before"));
    CHECK(probe_problem({now, before}, {plus(engine_before, 4, step), engine_before}, 100.0).text == "");
    // Noise of its own that hides the step moves it further, not less.
    CHECK(probe_problem({now, before}, {plus(plus(engine_before, 4, step), 5, 1e-2), engine_before}, 100.0).text == "");
  }
  // Nothing was learned: there is nothing to stay behind.
  const std::vector<double> same = values(1, 2.0);
  CHECK(probe_problem({same, same}, {same, same}, 0.1).text == "");
}

TEST_CASE("log-probs that are not finite are a problem") {
  std::vector<double> engine = values(1, 2.0);
  engine[5] = std::nan("");
  CHECK(probe_problem({values(1, 2.0), {}}, {engine, {}}, 0.1).text != "");
}

TEST_CASE("steps below what float32 can tell are no reason to suspect an engine") {
  const std::vector<double> before = values(1, 2.0);
  CHECK(probe_problem({plus(before, 4, 1e-7), before}, {before, before}, 0.1).text == "");
}
