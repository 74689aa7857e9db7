// A curve in plain ASCII for the end of a log. Pure; any thread.
#pragma once

#include <span>
#include <string>

namespace vime::report {

// `width` columns and `height` rows for the curve itself (at least 8 and 2), a labelled axis on the left, the index
// range below. More values than columns are averaged column by column; values that are not finite are left out. Every
// line ends with a newline and has no trailing blanks; "" when there is nothing finite to show.
std::string text_plot(std::span<const double> values, int width, int height, const std::string& title);

}  // namespace vime::report
