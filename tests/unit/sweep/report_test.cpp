#include "sweep/report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace vime;
using namespace vime::sweep;

namespace {

const Leg kFirst{8, 2, 2, 1, 2, Loss::token_mean};
const Leg kSecond{4, 1, 1, 4, 1, Loss::sample_mean};

LegResult passed(const Leg& leg) {
  LegResult result;
  result.leg = leg;
  result.status = Status::pass;
  result.seconds = 4.0;
  for (const std::string& name : check_names()) result.checks.push_back({name, 1e-7, 1e-5, "step 2, somewhere", ""});
  return result;
}

LegResult failed(const Leg& leg) {
  LegResult result = passed(leg);
  result.status = Status::fail;
  result.checks[2] = {"gradients", 2.0, 1e-4, "step 1, rank 5", "step 1: gradient of w differs"};
  result.failures = {"step 1: gradient of w differs"};
  result.logs = "runs/x/logs/latest";
  return result;
}

SweepResult sweep_of(std::vector<LegResult> legs) {
  SweepResult result;
  result.baselines = {passed(baseline_leg(Loss::token_mean))};
  result.legs = std::move(legs);
  result.seconds = 9.5;
  return result;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a sweep passes only when every leg was run and passed") {
  CHECK(exit_status(sweep_of({passed(kFirst), passed(kSecond)})) == 0);
  CHECK(exit_status(sweep_of({passed(kFirst), failed(kSecond)})) == 3);
  LegResult not_run;
  not_run.leg = kSecond;
  CHECK(exit_status(sweep_of({passed(kFirst), not_run})) == 3);
  CHECK(exit_status(sweep_of({})) == 3);
  SweepResult no_baseline = sweep_of({passed(kFirst)});
  no_baseline.baselines[0].status = Status::fail;
  CHECK(exit_status(no_baseline) == 3);
  SweepResult interrupted = sweep_of({passed(kFirst), not_run});
  interrupted.interrupted = true;
  CHECK(exit_status(interrupted) == 130);
  CHECK(sweep_status(interrupted) == "interrupted");
}

TEST_CASE("the JSON has every leg with its checks: error, tolerance, place and status") {
  LegResult bad = failed(kSecond);
  bad.checks[3].error = std::numeric_limits<double>::infinity();
  const Json json = to_json(sweep_of({passed(kFirst), bad}));
  CHECK(json["status"] == "fail");
  CHECK(json["seconds"] == 9.5);
  REQUIRE(json["legs"].size() == 2);
  const Json& leg = json["legs"][0];
  CHECK(leg["num_gpus"] == 8);
  CHECK(leg["tp"] == 2);
  CHECK(leg["pp"] == 2);
  CHECK(leg["cp"] == 1);
  CHECK(leg["dp"] == 2);
  CHECK(leg["loss"] == "token_mean");
  CHECK(leg["status"] == "pass");
  CHECK(leg["seconds"] == 4.0);
  CHECK(leg["checks"].size() == check_names().size());
  CHECK(leg["checks"]["gradients"] ==
        Json{{"error", 1e-7}, {"tolerance", 1e-5}, {"where", "step 2, somewhere"}, {"status", "pass"}});
  CHECK(json["legs"][1]["checks"]["gradients"]["status"] == "fail");
  CHECK(json["legs"][1]["checks"]["loss"]["error"].is_null());
  CHECK(json["legs"][1]["failures"][0] == "step 1: gradient of w differs");
  CHECK(json["baselines"][0]["loss"] == "token_mean");
  CHECK(json["baselines"][0]["status"] == "pass");
}

TEST_CASE("a row says how far the sweep is, and a failed leg's sentences stand below it") {
  const std::string row = table_row(failed(kFirst), {12, 66, 162.0});
  CHECK(contains(row, " 12/66 "));
  CHECK(contains(row, "fail"));
  CHECK(contains(row, "2!"));
  CHECK(contains(row, "2 m 42 s\n"));
  CHECK(contains(row, "tp 2 pp 2 cp 1 dp 2 (8 devices, token mean): step 1: gradient of w differs\n"));
  CHECK(contains(row, "logs: runs/x/logs/latest\n"));
  CHECK(contains(table_row(passed(kFirst), {66, 66, 0.0}), "1e-07"));
}

TEST_CASE("the closing counts, says how close it was, and names failures and what was not run") {
  LegResult not_run;
  not_run.leg = kFirst;
  const std::string text = closing(sweep_of({passed(kSecond), failed(kSecond), not_run}));
  CHECK(contains(text, "gradients        2, allowed 0.0001  (tp 1 pp 1 cp 4 dp 1 (4 devices, sample mean): step 1, "));
  CHECK(contains(text, "not run: tp 2 pp 2 cp 1 dp 2 (8 devices, token mean)\n"));
  CHECK(contains(text, "docs/parallelism.md"));
  CHECK(contains(text, "--run-dir DIR keeps their folders"));
  CHECK(contains(text, "fail: 3 legs, 1 passed, 1 failed, 1 not run, in 9.5 s\n"));
}

TEST_CASE("a baseline that failed is the first thing said of a sweep without results") {
  LegResult not_run;
  not_run.leg = kFirst;
  SweepResult result = sweep_of({not_run});
  result.baselines = {failed(baseline_leg(Loss::token_mean))};
  const std::string text = closing(result);
  CHECK(contains(text, "failed:\n  baseline tp 1 pp 1 cp 1 dp 1 (1 device, token mean): step 1: gradient"));
  CHECK(contains(text, "fail: 1 leg, 0 passed, 0 failed, 1 not run; 1 of 1 baseline failed, in 9.5 s\n"));
  CHECK_FALSE(contains(text, "largest errors"));
}

TEST_CASE("the end of a sweep has one line of a failure that the leg's row has told in full") {
  LegResult leg = failed(kFirst);
  leg.failures = {"engine 0 died:\nand said much", "step 1: gradient of w differs"};
  CHECK(contains(table_row(leg, {1, 1, 0.0}), "and said much"));
  const std::string text = closing(sweep_of({leg}));
  CHECK(contains(text, "  tp 2 pp 2 cp 1 dp 2 (8 devices, token mean): engine 0 died: (and 1 more failure)\n"));
  CHECK_FALSE(contains(text, "and said much"));
  CHECK_FALSE(contains(text, leg.logs));
}

TEST_CASE("the table calls a check what the closing and the JSON call it, in columns of one width") {
  const std::string head = table_head();
  const std::string row = table_row(passed(kFirst), {1, 2, 3.0});
  for (const char* name : {"grad_norm", "gradients", "logprobs", "loss", "weights", "engine_logprobs"}) {
    CAPTURE(name);
    CHECK(std::find(check_names().begin(), check_names().end(), name) != check_names().end());
    const size_t column = head.find(std::string("  ") + name);
    REQUIRE(column != std::string::npos);
    if (std::string(name) != "loss") CHECK(row.substr(column + 2, 6) == "1e-07 ");
  }
  CHECK(row.find("4.0 s") == head.find("time"));
  CHECK(baseline_row(passed(baseline_leg(Loss::token_mean))).find("4.0 s") == head.find("time"));
}

TEST_CASE("the largest error is the one that uses most of what its leg is allowed") {
  LegResult sharp = passed(kFirst), flat = passed(kSecond);
  sharp.checks[4] = {"logprobs", 3e-5, 4e-5, "step 1, there", ""};
  flat.checks[4] = {"logprobs", 9e-6, 1e-5, "step 2, here", ""};
  CHECK(contains(closing(sweep_of({sharp, flat})), "logprobs         9e-06, allowed 1e-05"));
}

TEST_CASE("the JSON says what was swept, and by what") {
  SweepResult result = sweep_of({passed(kFirst)});
  result.subject = {"0.1.0", "2026-11-29T14:02:11Z", "my.yaml", {"seed=7"}, 7, 4, 3, 2, "cpu",
                    "tiny",  {"PP 4 (2 layers)"}};
  const Json json = to_json(result);
  CHECK(json["vime"] == "0.1.0");
  CHECK(json["started"] == "2026-11-29T14:02:11Z");
  CHECK(json["config"] == "my.yaml");
  CHECK(json["set"] == Json{"seed=7"});
  CHECK(json["seed"] == 7);
  CHECK(json["rollout_num_gpus_per_engine"] == 4);
  CHECK(json["devices_per_gpu"] == 3);
  CHECK(json["jobs"] == 2);
  CHECK(json["device"] == "cpu");
  CHECK(json["model"] == "tiny");
  CHECK(json["left_out"] == Json{"PP 4 (2 layers)"});
}

TEST_CASE("the time left is told by devices") {
  CHECK(seconds_left({passed(kFirst)}, {kSecond}) == doctest::Approx(2.0));  // 4 s for 8 devices
  CHECK(seconds_left({}, {kSecond}) == 0.0);
}

TEST_CASE("the plan lists the legs") {
  const std::string text = plan_table({kFirst, kSecond}, 2);
  CHECK(contains(text, "    1     8   2   2   1   2  token_mean   8              4 x 2 devices\n"));
  CHECK(contains(text, "2 legs, and 2 baselines"));
  CHECK(contains(plan_table({{1, 1, 1, 1, 1, Loss::token_mean}}, 2), "  1              1 x 1 device\n"));
  CHECK(plan_json({{1, 1, 1, 1, 1, Loss::token_mean}}, 2, {})["legs"][0]["engines"] == 1);
  CHECK(left_out_line({"TP 8 (4 attention heads)", "PP 4 (2 layers)"}) ==
        "left out: TP 8 (4 attention heads), PP 4 (2 layers)\n");
  CHECK(left_out_line({}) == "");
  CHECK(jobs_line(1) == "");
  CHECK(jobs_line(3) == "3 legs at a time, in the order in which they finish\n");
  const Json json = plan_json({kFirst, kSecond}, 2, {"PP 4 (2 layers)"});
  CHECK(json["left_out"] == Json{"PP 4 (2 layers)"});
  CHECK(json["legs"].size() == 2);
  CHECK(json["legs"][1]["cp"] == 4);
  CHECK(json["legs"][1]["engines"] == 2);
}
