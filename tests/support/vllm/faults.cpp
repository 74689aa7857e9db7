#include "support/vllm/faults.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::stand_in {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

void check(const Fault& fault, const std::string& text) {
  static const std::vector<std::string> of_calls = {"hang", "half", "reset", "death"};
  static const std::vector<std::string> of_loads = {"stale", "half", "swapped_rows"};
  std::vector<std::string> known = fault.phase == "load" ? of_loads : of_calls;
  if (fault.phase == "generate") known.insert(known.end(), {"abort", "abort_at_once"});
  const bool is_status = is_number(fault.action) && std::atoi(fault.action.c_str()) >= 400 &&
                         std::atoi(fault.action.c_str()) < 600 && fault.phase != "load";
  if (is_status || std::find(known.begin(), known.end(), fault.action) != known.end()) return;
  throw Error(ErrorKind::refused, "VIME_STAND_IN_FAULT: \"" + text + "\": expected a status" +
                                      (fault.phase == "load" ? "" : " from 400 to 599") + " or one of " +
                                      join(known, ", ") + ", found \"" + fault.action + "\"");
}

}  // namespace

Faults::Faults(const std::string& text) {
  if (text.empty()) return;
  for (const std::string& part : split(text, ',')) {
    const std::vector<std::string> sides = split(part, '=');
    const std::vector<std::string> place = split(sides.front(), ':');
    const bool numbered = place.size() == 2 && is_number(place[1]) && std::atoi(place[1].c_str()) > 0;
    if (sides.size() != 2 || place.front().empty() || (place.size() != 1 && !numbered)) {
      throw Error(ErrorKind::refused,
                  "VIME_STAND_IN_FAULT: expected PHASE[:N]=ACTION with N from 1, found \"" + part + "\"");
    }
    faults_.push_back({place.front(), numbered ? std::atoi(place[1].c_str()) : 0, sides[1]});
    check(faults_.back(), part);
  }
}

std::optional<std::string> Faults::next(const std::string& phase) {
  const std::lock_guard lock(mutex_);
  const int call = ++calls_[phase];
  for (const Fault& fault : faults_) {
    if (fault.phase == phase && (fault.call == 0 || fault.call == call)) return fault.action;
  }
  return std::nullopt;
}

std::string phase_of(const std::string& path) {
  static const std::map<std::string, std::string> short_names = {
      {"/init_weight_transfer_engine", "init"}, {"/start_weight_update", "start"}, {"/update_weights", "update"},
      {"/finish_weight_update", "finish"},      {"/collective_rpc", "reload"},     {"/v1/completions", "generate"},
      {"/inference/v1/generate", "generate"},
  };
  const auto found = short_names.find(path);
  return found != short_names.end() ? found->second : path.substr(path.empty() ? 0 : 1);
}

}  // namespace vime::stand_in
