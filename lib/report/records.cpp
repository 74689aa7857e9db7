#include "report/records.hpp"

#include <cmath>

#include "base/error.hpp"

namespace vime::report {
namespace {

// Replaces what is no number in place and notes its path ("eval/a", "loss[2]").
void null_nonfinite(Json& value, const std::string& name, std::vector<std::string>& nonfinite) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    value = nullptr;
    nonfinite.push_back(name);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.items()) {
      null_nonfinite(member, name.empty() ? key : name + "." + key, nonfinite);
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      null_nonfinite(value[i], name + "[" + std::to_string(i) + "]", nonfinite);
    }
  }
}

}  // namespace

std::string json_line(const Json& object) {
  VIME_CHECK(object.is_object(), "a record must be an object");
  Json clean = object;
  std::vector<std::string> nonfinite;
  null_nonfinite(clean, "", nonfinite);
  if (!nonfinite.empty()) clean["nonfinite"] = nonfinite;
  return clean.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void MetricsWriter::write(int64_t step, const Json& metrics) {
  VIME_CHECK(metrics.is_object(), "metrics must be an object");
  Json line = {{"step", step}};
  for (const auto& [name, value] : metrics.items()) {
    VIME_CHECK(value.is_number() && name != "step" && name != "nonfinite", "metric \"" + name + "\" has no place");
    line[name] = value;
  }
  append_line(path_, json_line(line));
}

void EventLog::write(const std::string& kind, const Json& fields) {
  VIME_CHECK(fields.is_object(), "event fields must be an object");
  Json line = {{"time", now_()}, {"kind", kind}};
  for (const auto& [name, value] : fields.items()) {
    VIME_CHECK(name != "time" && name != "kind" && name != "nonfinite", "event field \"" + name + "\" has no place");
    line[name] = value;
  }
  append_line(path_, json_line(line));
}

}  // namespace vime::report
