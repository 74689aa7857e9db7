#include "vllm/dialect.hpp"

#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"

using namespace vime;
using namespace vime::vllm;

namespace {

std::string refusal(const std::string& version) {
  try {
    dialect_of(version);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK_FALSE(error.hint().empty());
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("each release speaks its generation") {
  const auto generation = [](const std::string& version) { return generation_name(dialect_of(version).generation); };
  CHECK(generation("0.21.0") == std::string("G2a"));
  for (const char* version : {"0.22.0", "0.22.1", "0.23.0", "0.24.0"}) CHECK(generation(version) == std::string("G2b"));
  for (const char* version : {"0.25.0", "0.25.1", "0.26.0"}) CHECK(generation(version) == std::string("G2c"));
  for (const char* version : {"0.27.0", "0.27.1", "0.29.0", "0.33.0", "1.0.0"}) {
    CHECK(generation(version) == std::string("G3"));
  }
}

TEST_CASE("versions are read in every form that a build may have") {
  for (const char* version : {"0.25.1", "0.25", "0.25.1rc1", "0.25rc2", "0.25.1.dev3+gabc.cu130", "v0.25.1",
                              "0.25.1+cpu", "0.25.1.post1", "0.25-1"}) {
    CAPTURE(version);
    const Dialect dialect = dialect_of(version);
    CHECK(dialect.version == version);
    CHECK(dialect.generation == Generation::g2c);
    CHECK_FALSE(dialect.newer_than_known);
  }
}

TEST_CASE("releases before 0.21 are refused with the reason") {
  for (const char* version : {"0.20.2", "0.16.0", "0.6.3.post1", "0.20.2.dev5+gabc"}) {
    CAPTURE(version);
    CHECK(refusal(version).find(std::string("vLLM ") + version + " is too old") == 0);
    CHECK(refusal(version).find("has to hold the whole model") != std::string::npos);
  }
}

TEST_CASE("what is no version is refused and shown") {
  for (const char* version : {"", "dev", "v", "1", "0.", "0.x", ".25.1", "0.-25", "-1.25", "0.25_1", "0.25x", "0 25",
                              "99999999999.1", "{\"version\": 1}"}) {
    CAPTURE(version);
    CHECK(refusal(version).find(std::string("found \"") + version + "\"") != std::string::npos);
  }
}

TEST_CASE("a release newer than the newest known speaks like it, and says so") {
  const Dialect newest = dialect_of("0.33.0");
  CHECK_FALSE(newest.newer_than_known);
  for (const char* version : {"0.34.0", "0.100.0", "1.0.0", "2.3"}) {
    Dialect newer = dialect_of(version);
    CHECK(newer.newer_than_known);
    CHECK(newer.generation == newest.generation);
    CHECK(newer.nccl_packed_in_init);
    CHECK(newer.pause_refuses_requests);
    CHECK_FALSE(newer.start_needs_body);
    CHECK_FALSE(newer.ipc_imports_ray);
  }
}

TEST_CASE("what a release can do begins and ends with the right one") {
  struct Row {
    bool Dialect::*field;
    const char *before, *first, *last, *after;  // before and after: "" where there is none
  };
  const Row rows[] = {
      {&Dialect::start_needs_body, "", "0.21.0", "0.24.0", "0.25.0"},
      {&Dialect::start_takes_raw_weights, "", "0.21.0", "0.24.0", "0.25.0"},
      {&Dialect::failed_update_ends_session, "0.22.1", "0.23.0", "0.33.0", ""},
      {&Dialect::finish_takes_version, "0.26.0", "0.27.0", "0.33.0", ""},
      {&Dialect::aborts_all_requests, "0.25.1", "0.26.0", "0.33.0", ""},
      {&Dialect::shuts_transfer_down, "0.31.0", "0.32.0", "0.33.0", ""},
      {&Dialect::has_weight_checker, "0.31.0", "0.32.0", "0.33.0", ""},
      {&Dialect::pause_refuses_requests, "0.32.0", "0.33.0", "0.33.0", ""},
      {&Dialect::ipc_value_has_function, "", "0.21.0", "0.21.0", "0.22.0"},
      {&Dialect::ipc_takes_packed, "0.21.0", "0.22.0", "0.33.0", ""},
      {&Dialect::ipc_packed_in_init, "0.26.0", "0.27.0", "0.33.0", ""},
      {&Dialect::ipc_imports_ray, "0.21.0", "0.22.0", "0.26.0", "0.27.0"},
      {&Dialect::nccl_packed_in_init, "0.27.1", "0.28.0", "0.33.0", ""},
      {&Dialect::nccl_takes_unique_id, "0.29.0", "0.30.0", "0.33.0", ""},
      {&Dialect::packed_takes_scalars, "0.31.0", "0.32.0", "0.33.0", ""},
      {&Dialect::generate_needs_flag, "0.29.0", "0.30.0", "0.33.0", ""},
      {&Dialect::generate_tells_versions, "0.31.0", "0.32.0", "0.33.0", ""},
      {&Dialect::generate_logprobs_by_id, "0.31.0", "0.32.0", "0.33.0", ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.first);
    CHECK(dialect_of(row.first).*row.field);
    CHECK(dialect_of(row.last).*row.field);
    for (const std::string version : {row.before, row.after}) {
      if (!version.empty()) CHECK_FALSE(dialect_of(version).*row.field);
    }
  }
}
