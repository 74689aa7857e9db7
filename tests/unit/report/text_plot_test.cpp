#include "report/text_plot.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/strings.hpp"

using vime::report::text_plot;

TEST_CASE("a rising curve is drawn as it is expected to look") {
  const std::vector<double> values = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(text_plot(values, 20, 4, "reward") ==
        "reward\n"
        "7 |      **\n"
        "  |    **\n"
        "  |  **\n"
        "0 |**\n"
        "  +--------\n"
        "   1      8\n");
}

TEST_CASE("more values than columns are averaged column by column") {
  std::vector<double> values;
  for (int i = 0; i < 16; ++i) values.push_back(i < 8 ? (i % 2 == 0 ? -1.0 : 1.0) : 0.5);
  CHECK(text_plot(values, 8, 2, "") ==
        "0.5 |    ****\n"
        "  0 |****\n"
        "    +--------\n"
        "     1     16\n");
}

TEST_CASE("a flat curve lies on the lowest row") {
  CHECK(text_plot(std::vector<double>(8, 0.25), 8, 3, "") ==
        "     |\n"
        "     |\n"
        "0.25 |********\n"
        "     +--------\n"
        "      1      8\n");
}

TEST_CASE("values that are not finite leave gaps and nothing finite gives nothing") {
  const double nan = std::nan("");
  CHECK(text_plot(std::vector<double>{0, nan, 1, std::numeric_limits<double>::infinity()}, 8, 2, "") ==
        "1 |  *\n"
        "0 |*\n"
        "  +----\n"
        "   1  4\n");
  CHECK(text_plot(std::vector<double>{nan, nan}, 8, 2, "t").empty());
  CHECK(text_plot({}, 8, 2, "t").empty());
}

TEST_CASE("a single value and extreme values are drawn") {
  CHECK(text_plot(std::vector<double>{3.0}, 8, 2, "") == "  |\n3 |*\n  +-\n   1\n");
  const double big = std::numeric_limits<double>::max();
  const std::string plot = text_plot(std::vector<double>{-big, big, -big, big}, 8, 2, "");
  CHECK(plot.find(" 1.8e+308 | * *\n-1.8e+308 |* *\n") == 0);
}

TEST_CASE("the plot stays within its width") {
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.push_back(std::sin(i * 0.01));
  const auto lines = vime::split(text_plot(values, 60, 10, "t"), '\n');
  REQUIRE(lines.size() == 1 + 10 + 2 + 1);
  for (const std::string& line : lines) CHECK(line.size() <= 60 + 10);
}
