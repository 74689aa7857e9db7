#include "sweep/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "base/strings.hpp"

namespace vime::sweep {
namespace {

const char* const kReadOn =
    "docs/parallelism.md says how to find the cause; --only tp=2,pp=2 and the like reruns some legs, --run-dir DIR "
    "keeps their folders";

// The figures of the table, by the names of their checks: what a leg is mainly read by.
constexpr const char* kColumns[] = {"grad_norm", "gradients", "logprobs", "loss", "weights", "engine_logprobs"};

std::string padded(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

// Room for the name and for "1.3e-06!".
size_t column_width(const std::string& name) {
  return std::max<size_t>(name.size(), 9) + 2;
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

// The rest stands below the leg's row.
std::string first_line(const LegResult& result) {
  const std::string first = result.failures.empty() ? "" : result.failures.front();
  const size_t more = result.failures.empty() ? 0 : result.failures.size() - 1;
  return leg_name(result.leg) + ": " + first.substr(0, first.find('\n')) +
         (more == 0 ? "" : " (and " + counted(more, "more failure") + ")") + "\n";
}

std::string number_of(const std::vector<LegResult>& results, Status status) {
  return std::to_string(
      std::count_if(results.begin(), results.end(), [&](const LegResult& one) { return one.status == status; }));
}

// "; 1 of 2 baselines failed"
std::string baselines_text(const SweepResult& result) {
  const std::string failed = number_of(result.baselines, Status::fail);
  return failed == "0" ? "" : "; " + failed + " of " + counted(result.baselines.size(), "baseline") + " failed";
}

// "gradients 3.1e-06 of 0.0001 (tp 2 ...: step 1, ...)" for each check, over all legs.
std::string closest_text(const SweepResult& result) {
  std::string text;
  for (const std::string& name : check_names()) {
    const LegResult* worst = nullptr;
    for (const LegResult& leg : result.legs) {
      const Check* check = find_check(leg, name);
      if (check == nullptr) continue;
      if (worst == nullptr || is_further(*check, *find_check(*worst, name))) worst = &leg;
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
    const int devices = engine_devices(legs[i], gpus_per_engine);
    text += row + layout_text(legs[i]) + padded(std::to_string(legs[i].num_gpus), 15) +
            std::to_string(legs[i].num_gpus / devices) + " x " + counted(static_cast<size_t>(devices), "device") + "\n";
  }
  return text + counted(legs.size(), "leg") + ", and " + counted(losses.size(), "baseline") +
         " of a single process without engines\n";
}

Json plan_json(const std::vector<Leg>& legs, int gpus_per_engine, const std::vector<std::string>& left_out) {
  Json rows = Json::array();
  std::set<Loss> losses;
  for (const Leg& leg : legs) {
    losses.insert(leg.loss);
    rows.push_back(leg_json(leg));
    rows.back()["engines"] = leg.num_gpus / engine_devices(leg, gpus_per_engine);
  }
  Json baselines = Json::array();
  for (const Loss loss : losses) baselines.push_back(loss_name(loss));
  return {{"legs", rows}, {"baselines", baselines}, {"left_out", left_out}};
}

std::string left_out_line(const std::vector<std::string>& left_out) {
  return left_out.empty() ? "" : "left out: " + join(left_out, ", ") + "\n";
}

std::string jobs_line(int jobs) {
  return jobs == 1 ? "" : counted(static_cast<size_t>(jobs), "leg") + " at a time, in the order in which they finish\n";
}

std::string table_head() {
  std::string line = "    leg  gpus  tp  pp  cp  dp  loss         status   ";
  for (const char* column : kColumns) line += padded(column, column_width(column));
  return without_trailing_blanks(line + padded("time", 10) + "left");
}

std::string table_row(const LegResult& result, const Progress& progress) {
  char place[32];
  std::snprintf(place, sizeof place, "%3zu/%-3zu  ", progress.done, progress.all);
  std::string line = place + layout_text(result.leg) + padded(status_name(result.status), 9);
  for (const char* column : kColumns) {
    const Check* check = find_check(result, column);
    line +=
        padded(check == nullptr ? "-" : error_text(check->error) + (check->passed() ? "" : "!"), column_width(column));
  }
  line += padded(format_seconds(result.seconds), 10);
  if (progress.done < progress.all) line += format_seconds(progress.seconds_left);
  return without_trailing_blanks(line) + (result.status == Status::fail ? failure_lines(result) : "");
}

std::string baseline_row(const LegResult& result) {
  std::string line = "baseline " + layout_text(result.leg) + padded(status_name(result.status), 9);
  for (const char* column : kColumns) line += padded("", column_width(column));
  return without_trailing_blanks(line + format_seconds(result.seconds)) +
         (result.status == Status::fail ? failure_lines(result) : "");
}

std::string closing(const SweepResult& result) {
  std::string text = closest_text(result);
  if (!text.empty()) text = "largest errors:\n" + text;
  std::vector<std::string> not_run;
  std::string failures;
  for (const LegResult& baseline : result.baselines) {
    if (baseline.status == Status::fail) failures += "  baseline " + first_line(baseline);
  }
  for (const LegResult& leg : result.legs) {
    if (leg.status == Status::not_run) not_run.push_back(leg_name(leg.leg));
    if (leg.status == Status::fail) failures += "  " + first_line(leg);
  }
  if (!not_run.empty()) text += "not run: " + join(not_run, ", ") + "\n";
  if (!failures.empty()) text += "failed:\n" + failures + "  " + kReadOn + "\n";
  return text + sweep_status(result) + ": " + counted(result.legs.size(), "leg") + ", " +
         number_of(result.legs, Status::pass) + " passed, " + number_of(result.legs, Status::fail) + " failed, " +
         number_of(result.legs, Status::not_run) + " not run" + baselines_text(result) + ", in " +
         format_seconds(result.seconds) + "\n";
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
  const Subject& subject = result.subject;
  return {{"vime", subject.vime},
          {"started", subject.started},
          {"config", subject.config},
          {"set", subject.set},
          {"seed", subject.seed},
          {"rollout_num_gpus_per_engine", subject.rollout_num_gpus_per_engine},
          {"devices_per_gpu", subject.devices_per_gpu},
          {"jobs", subject.jobs},
          {"device", subject.device},
          {"model", subject.model},
          {"left_out", subject.left_out},
          {"legs", legs},
          {"baselines", baselines},
          {"seconds", result.seconds},
          {"status", sweep_status(result)}};
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
