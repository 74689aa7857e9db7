// The vLLM servers of a run: how they are started, when they serve, and whether they suit the run.
#pragma once

#include <cstdint>
#include <vector>

#include "fleet/supervisor.hpp"
#include "fleet/vllm_launch.hpp"
#include "http/client.hpp"
#include "loop/prepare.hpp"
#include "weights/engine_client.hpp"

namespace vime::loop {

// Of every engine of the plan, in its order. model_dir: with config and tokenizer. ports: one for each engine.
std::vector<fleet::VllmLaunch> vllm_launches(const Prepared& prepared, const fs::path& model_dir,
                                             const fs::path& log_dir, const std::vector<uint16_t>& ports);

// Ports of this machine that nobody listens on at the moment.
std::vector<uint16_t> free_ports(std::size_t count);

// The addresses of servers that run or have been started: those of backend vllm on `ports`, those of backend external
// where the spec says. Their secret is read from the environment.
std::vector<weights::EngineAddress> vllm_addresses(const Prepared& prepared, const std::vector<uint16_t>& ports);

// Waits until all serve, at most engine.startup_timeout. Error{process_failed} of the first that died, with the end of
// its log, or naming those that do not answer.
void wait_until_serving(const Prepared& prepared, fleet::Supervisor& supervisor, http::Client& client,
                        const std::vector<weights::EngineAddress>& addresses, const fs::path& log_dir);

// Asks every server for its release and what it can do, and completes its address by that. Error{refused} with a line
// for everything that does not fit the run.
void meet_servers(const Prepared& prepared, http::Client& client, std::vector<weights::EngineAddress>& addresses);

}  // namespace vime::loop
