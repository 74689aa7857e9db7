#include "sweep/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/strings.hpp"

namespace vime::sweep {
namespace {

const char* const kReadOn = "docs/parallelism.md says how to find the cause";

// The figures of the table: what a leg is mainly read by.
struct Column {
  const char* title;
  const char* check;
};
constexpr Column kColumns[] = {{"grad norm", "grad_norm"}, {"gradients", "gradients"}, {"log-probs", "logprobs"},
                               {"loss", "loss"},           {"weights", "weights"},     {"engines", "engine_logprobs"}};

std::string padded(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string layout_text(const Leg& leg) {
  char text[64];
  std::snprintf(text, sizeof text, "%4d  %2d  %2d  %2d  %2d  %-11s  ", leg.num_gpus, leg.tp, leg.pp, leg.cp, leg.dp,
                loss_name(leg.loss));
  return text;
}

const Check* find_check(const LegResult& result, const std::string& name) {
  for (const Check& check : result.checks) {
    if (check.name == name) return &check;
  }
  return nullptr;
}

std::string without_trailing_blanks(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string failure_lines(const LegResult& result) {
  std::string text;
  for (const std::string& failure : result.failures) text += "    " + leg_name(result.leg) + ": " + failure + "\n";
  if (!result.logs.empty()) text += "    logs: " + result.logs + "\n";
  return text;
}

std::string counted(size_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

size_t count(const SweepResult& result, Status status) {
  return static_cast<size_t>(std::count_if(result.legs.begin(), result.legs.end(),
                                           [&](const LegResult& leg) { return leg.status == status; }));
}

// "gradients 3.1e-06 of 0.0001 (tp 2 ...: step 1, ...)" for each check, over all legs.
std::string closest_text(const SweepResult& result) {
  std::string text;
  for (const std::string& name : check_names()) {
    const LegResult* worst = nullptr;
    for (const LegResult& leg : result.legs) {
      const Check* check = find_check(leg, name);
      if (check == nullptr) continue;
      if (worst == nullptr || check->error > find_check(*worst, name)->error) worst = &leg;
    }
    if (worst == nullptr) continue;
    const Check& check = *find_check(*worst, name);
    text += "  " + padded(name, 17) + error_text(check.error) + ", allowed " + error_text(check.tolerance);
    if (!check.where.empty() && check.error > 0.0) text += "  (" + leg_name(worst->leg) + ": " + check.where + ")";
    text += "\n";
  }
  return text;
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json leg_json(const Leg& leg) {
  return {{"num_gpus", leg.num_gpus},   {"tp", leg.tp}, {"pp", leg.pp}, {"cp", leg.cp}, {"dp", leg.dp},
          {"loss", loss_name(leg.loss)}};
}

Json checks_json(const std::vector<Check>& checks) {
  Json json = Json::object();
  for (const Check& check : checks) {
    json[check.name] = {{"error", number_or_null(check.error)},
                        {"tolerance", check.tolerance},
                        {"where", check.where},
                        {"status", check.passed() ? "pass" : "fail"}};
  }
  return json;
}

}  // namespace

std::string plan_table(const std::vector<Leg>& legs, int gpus_per_engine) {
  std::string text = "  leg  gpus  tp  pp  cp  dp  loss         trainer ranks  engines\n";
  std::set<Loss> losses;
  for (size_t i = 0; i < legs.size(); ++i) {
    losses.insert(legs[i].loss);
    char row[32];
    std::snprintf(row, sizeof row, "%5zu  ", i + 1);
    const int engines = legs[i].num_gpus / gpus_per_engine;
    text += row + layout_text(legs[i]) + padded(std::to_string(legs[i].num_gpus), 15) + std::to_string(engines) +
            " x " + counted(static_cast<size_t>(gpus_per_engine), "device") + "\n";
  }
  return text + counted(legs.size(), "leg") + ", and " + counted(losses.size(), "baseline") +
         " of a single process without engines\n";
}

Json plan_json(const std::vector<Leg>& legs, int gpus_per_engine) {
  Json rows = Json::array();
  std::set<Loss> losses;
  for (const Leg& leg : legs) {
    losses.insert(leg.loss);
    rows.push_back(leg_json(leg));
    rows.back()["engines"] = leg.num_gpus / gpus_per_engine;
  }
  Json baselines = Json::array();
  for (const Loss loss : losses) baselines.push_back(loss_name(loss));
  return {{"legs", rows}, {"baselines", baselines}};
}

std::string table_head() {
  std::string line = "    leg  gpus  tp  pp  cp  dp  loss         status   ";
  for (const Column& column : kColumns) line += padded(column.title, 11);
  return without_trailing_blanks(line + padded("time", 10) + "left");
}

std::string table_row(const LegResult& result, const Progress& progress) {
  char place[32];
  std::snprintf(place, sizeof place, "%3zu/%-3zu  ", progress.done, progress.all);
  std::string line = place + layout_text(result.leg) + padded(status_name(result.status), 9);
  for (const Column& column : kColumns) {
    const Check* check = find_check(result, column.check);
    line += padded(check == nullptr ? "-" : error_text(check->error) + (check->passed() ? "" : "!"), 11);
  }
  line += padded(format_seconds(result.seconds), 10);
  if (progress.done < progress.all) line += format_seconds(progress.seconds_left);
  return without_trailing_blanks(line) + (result.status == Status::fail ? failure_lines(result) : "");
}

std::string baseline_row(const LegResult& result) {
  const std::string line = "baseline " + layout_text(result.leg) + padded(status_name(result.status), 9) +
                           padded("", 66) + format_seconds(result.seconds);
  return without_trailing_blanks(line) + (result.status == Status::fail ? failure_lines(result) : "");
}

std::string closing(const SweepResult& result) {
  const size_t failed = count(result, Status::fail), not_run = count(result, Status::not_run);
  std::string text = closest_text(result);
  if (!text.empty()) text = "largest errors:\n" + text;
  if (not_run > 0) {
    std::vector<std::string> names;
    for (const LegResult& leg : result.legs) {
      if (leg.status == Status::not_run) names.push_back(leg_name(leg.leg));
    }
    text += "not run: " + join(names, ", ") + "\n";
  }
  std::string failures;
  for (const LegResult& baseline : result.baselines) {
    if (baseline.status == Status::fail) failures += "  the baseline:\n" + failure_lines(baseline);
  }
  for (const LegResult& leg : result.legs) {
    if (leg.status == Status::fail) failures += failure_lines(leg);
  }
  if (!failures.empty()) {
    text += "failed:\n" + failures + "  " + kReadOn + "; --only tp=2,pp=2 and the like reruns some legs\n";
  }
  return text + sweep_status(result) + ": " + counted(result.legs.size(), "leg") + ", " +
         std::to_string(count(result, Status::pass)) + " passed, " + std::to_string(failed) + " failed, " +
         std::to_string(not_run) + " not run, in " + format_seconds(result.seconds) + "\n";
}

Json to_json(const SweepResult& result) {
  Json legs = Json::array();
  for (const LegResult& leg : result.legs) {
    Json row = leg_json(leg.leg);
    row["status"] = status_name(leg.status);
    row["checks"] = checks_json(leg.checks);
    row["failures"] = leg.failures;
    row["logs"] = leg.logs;
    row["seconds"] = leg.seconds;
    legs.push_back(row);
  }
  Json baselines = Json::array();
  for (const LegResult& baseline : result.baselines) {
    baselines.push_back({{"loss", loss_name(baseline.leg.loss)},
                         {"status", status_name(baseline.status)},
                         {"failures", baseline.failures},
                         {"logs", baseline.logs},
                         {"seconds", baseline.seconds}});
  }
  return {{"legs", legs}, {"baselines", baselines}, {"seconds", result.seconds}, {"status", sweep_status(result)}};
}

double seconds_left(const std::vector<LegResult>& done, const std::vector<Leg>& left) {
  double seconds = 0.0, devices = 0.0, devices_left = 0.0;
  for (const LegResult& leg : done) {
    seconds += leg.seconds;
    devices += leg.leg.num_gpus;
  }
  for (const Leg& leg : left) devices_left += leg.num_gpus;
  return devices > 0.0 ? seconds / devices * devices_left : 0.0;
}

}  // namespace vime::sweep
