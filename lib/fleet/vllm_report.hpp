// What `vime doctor --vllm` says of a server or an installation. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "fleet/vllm_install.hpp"
#include "fleet/vllm_probe.hpp"

namespace vime::fleet {

// {"version", "generation", "can": {...}, "missing": [...]}. missing: what keeps the server from being pushed to by any
// transport, or by the one that it is configured for.
Json server_report(const std::string& url, const ServerFacts& facts);
Json install_report(const InstallFacts& facts);
std::string report_text(const Json& report);

}  // namespace vime::fleet
