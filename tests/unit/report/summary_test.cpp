#include "report/summary.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace vime;
using namespace vime::report;

TEST_CASE("the history keeps the first, the last and the best score of each data set") {
  EvalHistory history;
  history.record("heldout", 0, 0.02);
  history.record("other", 0, 0.5);
  history.record("heldout", 50, 0.95);
  history.record("heldout", 100, 0.9);
  REQUIRE(history.figures().size() == 2);
  const EvalFigures& figures = history.figures()[0];
  CHECK(figures.name == "heldout");
  CHECK(figures.first == 0.02);
  CHECK(figures.last == 0.9);
  CHECK(figures.best == 0.95);
  CHECK(figures.best_step == 50);
  CHECK(history.figures()[1].best_step == 0);
}

TEST_CASE("a score that is no number is never the best") {
  EvalHistory history;
  history.record("a", 0, std::nan(""));
  history.record("a", 10, 0.3);
  history.record("a", 20, std::nan(""));
  CHECK(history.figures()[0].best == 0.3);
  CHECK(history.figures()[0].best_step == 10);
  const Json json = to_json(Summary{20, 21, history.figures(), 1.0, std::nullopt});
  CHECK(json["eval"]["a"]["first"].is_null());
  CHECK(json["eval"]["a"]["last"].is_null());
  CHECK(json["eval"]["a"]["best"] == 0.3);
}

TEST_CASE("a good run's summary reads back from its file") {
  const TempDir dir;
  EvalHistory history;
  history.record("heldout", 0, 0.02);
  write_summary(dir.path() / "summary.json", Summary{250, 251, history.figures(), 61.5, std::nullopt});
  const Json json = parse_json(read_file(dir.path() / "summary.json"), "summary.json");
  CHECK(json["status"] == "ok");
  CHECK(json["exit_status"] == 0);
  CHECK(json["steps"] == 250);
  CHECK(json["weight_version"] == 251);
  CHECK(json["wall_time_s"] == 61.5);
  CHECK(json["error"].is_null());
  CHECK(json["eval"]["heldout"] == Json{{"first", 0.02}, {"last", 0.02}, {"best", 0.02}, {"best_step", 0}});
}

TEST_CASE("a run that ended early says why and with which status") {
  Summary summary;
  summary.error = Error(ErrorKind::check_failed, "engine 1 says version 3, expected 4", "restart it \xff");
  Json json = to_json(summary);
  CHECK(json["status"] == "failed");
  CHECK(json["exit_status"] == 3);
  CHECK(json["error"]["kind"] == "check_failed");
  CHECK(json["error"]["message"] == "engine 1 says version 3, expected 4");
  const TempDir dir;
  CHECK_NOTHROW(write_summary(dir.path() / "summary.json", summary));
  summary.error = Error(ErrorKind::interrupted, "interrupted by the user");
  json = to_json(summary);
  CHECK(json["status"] == "interrupted");
  CHECK(json["exit_status"] == 130);
  CHECK(json["eval"].is_object());
}
