#include "report/records.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/strings.hpp"

using namespace vime;
using namespace vime::report;

TEST_CASE("metrics are appended one object per step, in their order") {
  const TempDir dir;
  const fs::path path = dir.path() / "metrics.jsonl";
  MetricsWriter(path).write(1, {{"train/loss", 0.25}, {"weights/version", 3}});
  MetricsWriter(path).write(2, {{"train/loss", -1e-9}});
  CHECK(read_file(path) ==
        "{\"step\":1,\"train/loss\":0.25,\"weights/version\":3}\n{\"step\":2,\"train/loss\":-1e-09}\n");
}

TEST_CASE("numbers that are not finite become null and are listed") {
  const TempDir dir;
  const fs::path path = dir.path() / "metrics.jsonl";
  MetricsWriter(path).write(1, {{"train/loss", std::nan("")},
                                {"train/grad_norm", std::numeric_limits<double>::infinity()},
                                {"rollout/raw_reward", 0.5}});
  const Json line = parse_json(split(read_file(path), '\n')[0], "line");
  CHECK(line["train/loss"].is_null());
  CHECK(line["train/grad_norm"].is_null());
  CHECK(line["rollout/raw_reward"] == 0.5);
  CHECK(line["nonfinite"] == Json{"train/loss", "train/grad_norm"});
}

TEST_CASE("doubles survive the file to the last bit") {
  const TempDir dir;
  const fs::path path = dir.path() / "metrics.jsonl";
  const double value = 0.1 + 0.2;
  MetricsWriter(path).write(1, {{"x", value}});
  CHECK(parse_json(split(read_file(path), '\n')[0], "line")["x"].get<double>() == value);
}

TEST_CASE("a metric that is no number or takes a reserved name is a bug") {
  const TempDir dir;
  MetricsWriter writer(dir.path() / "metrics.jsonl");
  CHECK_THROWS_AS(writer.write(1, {{"x", "text"}}), Error);
  CHECK_THROWS_AS(writer.write(1, {{"step", 2}}), Error);
  CHECK_THROWS_AS(writer.write(1, Json::array()), Error);
}

TEST_CASE("events carry time, kind and their fields, whatever bytes these hold") {
  const TempDir dir;
  const fs::path path = dir.path() / "events.jsonl";
  EventLog log(path, [] { return std::string("2026-01-02T03:04:05Z"); });
  log.write("run_started");
  log.write("engine_died", {{"engine", 2}, {"log", "bad \xff byte\n"}, {"values", {1.0, std::nan("")}}});
  const auto lines = split(read_file(path), '\n');
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "{\"time\":\"2026-01-02T03:04:05Z\",\"kind\":\"run_started\"}");
  const Json second = parse_json(lines[1], "line");
  CHECK(second["engine"] == 2);
  CHECK(second["log"] == "bad \xef\xbf\xbd byte\n");
  CHECK(second["nonfinite"] == Json::array({"values[1]"}));
  CHECK_THROWS_AS(log.write("x", {{"kind", 1}}), Error);
}

TEST_CASE("a file that cannot be written is an error that names it") {
  try {
    MetricsWriter("/nonexistent-folder/metrics.jsonl").write(1, {{"x", 1}});
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::exhausted);
    CHECK(e.message().find("/nonexistent-folder/metrics.jsonl") != std::string::npos);
  }
}
