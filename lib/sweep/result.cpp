#include "sweep/result.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace vime::sweep {

const char* status_name(Status status) {
  switch (status) {
    case Status::pass:
      return "pass";
    case Status::fail:
      return "fail";
    case Status::not_run:
      return "not_run";
  }
  return "";
}

std::string sweep_status(const SweepResult& result) {
  if (result.interrupted) return "interrupted";
  const auto passed = [](const LegResult& leg) { return leg.status == Status::pass; };
  const bool all = std::all_of(result.baselines.begin(), result.baselines.end(), passed) &&
                   std::all_of(result.legs.begin(), result.legs.end(), passed);
  return all && !result.legs.empty() ? "pass" : "fail";
}

int exit_status(const SweepResult& result) {
  if (result.interrupted) return vime::exit_status(ErrorKind::interrupted);
  return sweep_status(result) == "pass" ? 0 : vime::exit_status(ErrorKind::check_failed);
}

}  // namespace vime::sweep
