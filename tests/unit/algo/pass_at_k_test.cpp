#include "algo/pass_at_k.hpp"

#include <doctest/doctest.h>

using namespace vime::algo;

TEST_CASE("pass@k counts the draws of k answers that hold a right one") {
  // By hand: of the C(4, 2) = 6 pairs out of 4 answers with 1 right, 3 hold it; with 2 right, 5 do.
  CHECK(pass_at_k(4, 1, 2) == doctest::Approx(0.5).epsilon(1e-15));
  CHECK(pass_at_k(4, 2, 2) == doctest::Approx(5.0 / 6.0).epsilon(1e-15));
  CHECK(pass_at_k(8, 3, 1) == doctest::Approx(3.0 / 8.0).epsilon(1e-15));
  CHECK(pass_at_k(8, 0, 8) == 0.0);
  CHECK(pass_at_k(8, 1, 8) == 1.0);
  CHECK(pass_at_k(1000, 999, 2) == 1.0);
  CHECK(pass_at_k(1000, 500, 1) == doctest::Approx(0.5).epsilon(1e-12));
}

TEST_CASE("pass@k agrees with counting all subsets") {
  for (int64_t n = 1; n <= 10; ++n) {
    for (int64_t c = 0; c <= n; ++c) {
      for (int64_t k = 1; k <= n; ++k) {
        int64_t subsets = 0, with_right = 0;
        for (int64_t bits = 0; bits < (int64_t{1} << n); ++bits) {
          if (__builtin_popcountll(static_cast<unsigned long long>(bits)) != k) continue;
          ++subsets;
          if ((bits & ((int64_t{1} << c) - 1)) != 0) ++with_right;  // the first c answers are the right ones
        }
        CHECK(pass_at_k(n, c, k) ==
              doctest::Approx(static_cast<double>(with_right) / static_cast<double>(subsets)).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("the sizes are the powers of two up to the number of answers") {
  CHECK(pass_at_k_sizes(1) == std::vector<int64_t>{1});
  CHECK(pass_at_k_sizes(6) == std::vector<int64_t>{1, 2, 4});
  CHECK(pass_at_k_sizes(8) == std::vector<int64_t>{1, 2, 4, 8});
}
