// What a resolved spec asks of the placement room, and how weights travel to each engine that it places. Pure
// functions.
#pragma once

#include <string>

#include "placement/placement.hpp"
#include "spec/spec.hpp"

namespace vime::spec {

// The spec's section "placement" and the trainer's layout. The run id decides the UUIDs of CPU devices.
placement::Request placement_request(const ExperimentSpec& spec, const std::string& run_id);

// How weights reach this engine: "shm", "tcp", "cuda_ipc", "nccl" or "disk".
std::string transport_of(const ExperimentSpec& spec, const placement::Engine& engine);
// From the memory of the ranks beside it, from the one network source (colocated or not), or from a folder.
enum class Route { memory, network, disk };
Route route_of(const ExperimentSpec& spec, const placement::Engine& engine);

}  // namespace vime::spec
