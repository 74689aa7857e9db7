#include "weights/version.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"

using namespace vime;
using namespace vime::weights;

TEST_CASE("default is version 0 and a decimal integer is itself") {
  CHECK(parse_version("default", "engine 0") == 0);
  CHECK(parse_version("17", "engine 0") == 17);
}

TEST_CASE("a version text that is no integer names the engine and the text") {
  for (const char* text : {"", "/models/qwen", "1.5", "-1", "12 ", " 12", "0x10", "99999999999999999999"}) {
    CAPTURE(text);
    try {
      parse_version(text, "engine 3");
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::check_failed);
      CHECK(error.message().find("engine 3") != std::string::npos);
      CHECK(error.message().find(text) != std::string::npos);
    }
  }
}

TEST_CASE("planted.a failed push's number is never used again for other bytes") {
  VersionLedger ledger;
  const int64_t first = ledger.take_candidate();
  CHECK(first == 1);
  // The push fails: nothing is committed. The wrong rule (1 + committed) would hand out 1 again.
  CHECK(1 + ledger.committed() == first);
  CHECK(ledger.take_candidate() == 2);
  ledger.commit(2);
  CHECK(ledger.committed() == 2);
  CHECK(ledger.take_candidate() == 3);
}

TEST_CASE("a candidate is above what an engine that vime did not start reports") {
  VersionLedger ledger(4, 6);
  CHECK(ledger.take_candidate() == 7);
  ledger.observe(41);
  CHECK(ledger.take_candidate() == 42);
  ledger.observe(3);
  CHECK(ledger.take_candidate() == 43);
}

TEST_CASE("only the last candidate can be committed") {
  VersionLedger ledger;
  ledger.take_candidate();
  ledger.take_candidate();
  CHECK_THROWS_AS(ledger.commit(1), Error);
  ledger.commit(2);
  CHECK_THROWS_AS(ledger.commit(2), Error);
}

TEST_CASE("planted.every engine is checked: one stale engine of eight is found wherever it is") {
  for (size_t stale = 0; stale < 8; ++stale) {
    std::vector<EngineVersion> engines;
    for (size_t i = 0; i < 8; ++i) engines.push_back({"engine " + std::to_string(i), true, i == stale ? "4" : "5"});
    const auto problems = version_problems(5, engines);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0] == "engine " + std::to_string(stale) + ": weight version mismatch: expected 5, engine says 4");
    // The wrong rule looks at one engine only, here the next: it sees nothing.
    CHECK(version_problems(5, {engines[(stale + 1) % 8]}).empty());
  }
}

TEST_CASE("an unreadable or non-integer version is a problem, never a pass") {
  CHECK(version_problems(1, {{"engine 0", false, "HTTP 500"}}).size() == 1);
  CHECK(version_problems(1, {{"engine 0", true, "/models/tiny"}}).size() == 1);
  CHECK(version_problems(0, {{"engine 0", true, "default"}}).empty());
}

TEST_CASE("a parameter that differs, is missing or is surplus on an engine is named") {
  const std::map<std::string, uint64_t> trainer = {{"a", 1}, {"b", 2}};
  CHECK(checksum_problems(trainer, {{"engine 0", trainer}}).empty());
  const auto differs = checksum_problems(trainer, {{"engine 0", trainer}, {"engine 1", {{"a", 1}, {"b", 3}}}});
  REQUIRE(differs.size() == 1);
  CHECK(differs[0].find("engine 1") == 0);
  CHECK(differs[0].find("first b: expected 0000000000000002, found 0000000000000003") != std::string::npos);
  CHECK(checksum_problems(trainer, {{"engine 0", {{"a", 1}}}})[0].find("first b, which is missing") !=
        std::string::npos);
  CHECK(checksum_problems(trainer, {{"engine 0", {{"a", 1}, {"b", 2}, {"c", 0}}}})[0].find(
            "first c, which the trainer does not have") != std::string::npos);
}
