#include "text/jinja_filters.hpp"

#include <vector>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "text/jinja_filter_table.hpp"

namespace vime::text::jinja {
namespace {

const FilterTable& filters() {
  static const FilterTable all = [] {
    FilterTable table = text_filters();
    const size_t of_text = table.size();
    const FilterTable of_sequences = sequence_filters();
    table.insert(of_sequences.begin(), of_sequences.end());
    VIME_CHECK(table.size() == of_text + of_sequences.size(), "two filters have one name");
    return table;
  }();
  return all;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, Budget& budget) {
  budget.charge(10);
  const auto found = filters().find(name);
  if (found != filters().end()) return found->second({name, value, arguments, budget});
  std::vector<std::string> names;
  for (const auto& [known, filter] : filters()) names.push_back(known);
  fail("the filter \"" + name + "\" is not supported", "supported: " + join(names, ", "));
}

}  // namespace vime::text::jinja
