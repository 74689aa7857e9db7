#include "report/text_plot.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/strings.hpp"

namespace vime::report {
namespace {

// One value per column: the mean of the finite values that fall into it, or nothing.
std::vector<std::optional<double>> columns_of(std::span<const double> values, size_t width) {
  const size_t count = std::min(width, values.size());
  std::vector<std::optional<double>> columns(count);
  for (size_t column = 0; column < count; ++column) {
    const size_t first = column * values.size() / count;
    const size_t end = (column + 1) * values.size() / count;
    double sum = 0.0;
    int finite = 0;
    for (size_t i = first; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i] / static_cast<double>(end - first);
      ++finite;
    }
    // Dividing before summing keeps huge values finite; the factor makes up for those left out.
    if (finite > 0) columns[column] = sum * static_cast<double>(end - first) / finite;
  }
  return columns;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string right_aligned(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace

std::string text_plot(std::span<const double> values, int width, int height, const std::string& title) {
  const auto columns = columns_of(values, static_cast<size_t>(std::max(width, 8)));
  const int rows = std::max(height, 2);
  std::optional<double> low;
  std::optional<double> high;
  for (const auto& value : columns) {
    if (!value || !std::isfinite(*value)) continue;
    low = std::min(low.value_or(*value), *value);
    high = std::max(high.value_or(*value), *value);
  }
  if (!low) return "";

  // A flat curve lies on the lowest row.
  const double half_span = *high / 2 - *low / 2;
  const auto row_of = [&](double value) {
    if (half_span <= 0.0) return 0;
    return static_cast<int>(std::lround((value / 2 - *low / 2) / half_span * (rows - 1)));
  };
  std::vector<std::string> canvas(static_cast<size_t>(rows), std::string(columns.size(), ' '));
  for (size_t column = 0; column < columns.size(); ++column) {
    if (!columns[column] || !std::isfinite(*columns[column])) continue;
    canvas[static_cast<size_t>(row_of(*columns[column]))][column] = '*';
  }

  const std::string top = format_number(*high, 3);
  const std::string bottom = format_number(*low, 3);
  const size_t margin = std::max(top.size(), bottom.size());
  std::string plot = title.empty() ? "" : without_trailing_blanks(title);
  for (int row = rows - 1; row >= 0; --row) {
    std::string label;
    if (row == rows - 1 && half_span > 0.0) label = top;
    if (row == 0) label = bottom;
    plot += without_trailing_blanks(right_aligned(label, margin) + " |" + canvas[static_cast<size_t>(row)]);
  }
  plot += std::string(margin, ' ') + " +" + std::string(columns.size(), '-') + "\n";
  const std::string last = std::to_string(values.size());
  std::string range = "1";
  if (values.size() > 1) range += right_aligned(last, std::max(columns.size(), last.size() + 2) - 1);
  plot += without_trailing_blanks(std::string(margin + 2, ' ') + range);
  return plot;
}

}  // namespace vime::report
