#include "support/vllm/flavour.hpp"

#include <cstdio>

namespace vime::stand_in {
namespace {

constexpr int kNewestMinor = 32;

std::string version_of(const std::string& name) {
  if (name == "G2a") return "0.21.0";
  if (name == "G2b") return "0.24.0";
  if (name == "G2c") return "0.25.1";
  if (name == "G3" || name.empty()) return "0.32.0";
  return name;
}

}  // namespace

Flavour flavour_of(const std::string& name) {
  Flavour flavour;
  flavour.version = version_of(name);
  int major = 0;
  int minor = 0;
  if (std::sscanf(flavour.version.c_str(), "%d.%d", &major, &minor) != 2 || major > 0) minor = kNewestMinor;
  flavour.start_needs_body = minor <= 24;
  flavour.handle_has_function = minor <= 21;
  flavour.packed_ipc = minor >= 22;
  flavour.ipc_imports_ray = minor >= 22 && minor <= 26;
  flavour.knows_update_kind = minor == 23 || minor == 24;
  flavour.knows_sparse = minor >= 25;
  flavour.aborts_and_drafts = minor >= 26;
  flavour.ipc_packed_in_init = minor >= 27;
  flavour.nccl_packed_in_init = minor >= 28;
  flavour.takes_unique_id = minor >= 30;
  flavour.has_versions = minor >= 27;
  flavour.newest_generate = minor >= 31;
  flavour.generate_max_tokens = minor <= 21 ? 16 : 0;
  flavour.highest_handle_version = minor >= 27 ? 3 : 2;
  return flavour;
}

}  // namespace vime::stand_in
