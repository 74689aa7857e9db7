// What the tests of this room share: engines in processes of their own, and whether any is left.
#pragma once

#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "bench/engine_process.hpp"
#include "placement/placement.hpp"

namespace vime::bench::test {

inline std::vector<std::string> engine_command(const std::string& habit) {
  return {std::string(VIME_BIN_DIR) + "/bench_test_engine", habit};
}

inline std::vector<std::string> uuids() {
  return {placement::cpu_device_uuid("bench", 0, 0)};
}

inline Json engine_options(milliseconds timeout) {
  return {{"model", "tiny"}, {"uuids", uuids()}, {"gpu", false}, {"timeout_ms", timeout.count()}};
}

// Ended and not waited for counts.
inline bool has_children() {
  return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD;
}

}  // namespace vime::bench::test
