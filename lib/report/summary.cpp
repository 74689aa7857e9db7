#include "report/summary.hpp"

#include <algorithm>
#include <cmath>

namespace vime::report {
namespace {

// JSON has no word for what is not finite.
Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

}  // namespace

void EvalHistory::record(const std::string& name, int64_t step, double score) {
  auto figures = std::find_if(figures_.begin(), figures_.end(), [&](const EvalFigures& f) { return f.name == name; });
  if (figures == figures_.end())
    figures = figures_.insert(figures_.end(), EvalFigures{name, score, score, score, step});
  figures->last = score;
  if (std::isfinite(score) && (!std::isfinite(figures->best) || score > figures->best)) {
    figures->best = score;
    figures->best_step = step;
  }
}

std::string status(const Summary& summary) {
  if (!summary.error) return "ok";
  return summary.error->kind() == ErrorKind::interrupted ? "interrupted" : "failed";
}

int exit_status(const Summary& summary) {
  return summary.error ? vime::exit_status(summary.error->kind()) : 0;
}

Json to_json(const Summary& summary) {
  Json eval = Json::object();
  for (const EvalFigures& figures : summary.eval) {
    eval[figures.name] = {{"first", number_or_null(figures.first)},
                          {"last", number_or_null(figures.last)},
                          {"best", number_or_null(figures.best)},
                          {"best_step", figures.best_step}};
  }
  Json error;
  if (summary.error) {
    error = {{"kind", kind_name(summary.error->kind())},
             {"message", summary.error->message()},
             {"hint", summary.error->hint()}};
  }
  return {{"status", status(summary)},
          {"exit_status", exit_status(summary)},
          {"steps", summary.steps},
          {"weight_version", summary.weight_version},
          {"eval", eval},
          {"wall_time_s", number_or_null(summary.wall_time_s)},
          {"error", error}};
}

void write_summary(const fs::path& path, const Summary& summary) {
  write_file_atomic(path, to_json(summary).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace vime::report
