// Where everything runs: pure functions from an inventory of nodes to devices, trainer ranks, engines and slots. Nothing is started.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime::placement {

struct Device {
  int global = 0;  // index over all nodes
  int node = 0;
  int index = 0;     // on its node
  std::string uuid;  // 8-4-4-4-12, lower case
};

struct Layout {
  int tp = 1, pp = 1, cp = 1, dp = 1;
};

struct TrainerRank {
  int rank = 0;
  int device = 0;  // Device::global
  int tp_rank = 0, cp_rank = 0, dp_rank = 0, pp_rank = 0;
};

struct Engine {
  int id = 0;
  int start = 0;             // first device (global)
  int count = 0;             // devices, one worker each
  bool colocated = false;    // wholly inside the trainer's devices, and so is every engine before it
  std::vector<int> nodes;    // nodes it touches; more than one only when asked for
};

// The peers of a colocated engine: trainer ranks [start, start + count); the leader is the rank with rank == start.
struct Slot {
  int engine = 0;
  int start = 0;
  int count = 0;
  int leader() const { return start; }
  bool contains(int rank) const { return rank >= start && rank < start + count; }
};

struct Request {
  std::vector<int> nodes;  // devices of each node
  bool colocate = true;
  int actor_num_nodes = 1;
  int actor_num_gpus_per_node = 1;
  int rollout_num_gpus = 1;
  int rollout_num_gpus_per_engine = 1;
  int tensor_model_parallel_size = 1, pipeline_model_parallel_size = 1, context_parallel_size = 1;
  bool allow_engines_across_nodes = false;
  std::string run_id;  // for the UUIDs of CPU devices
};

struct Plan {
  std::vector<Device> devices;
  Layout layout;
  std::vector<TrainerRank> ranks;
  std::vector<Engine> engines;
  std::vector<Slot> slots;            // of the colocated engines, in engine order
  std::vector<int> overflow_engines;  // ids; they get weights over the network from rank 0
};

// Every reason why the request cannot be placed, each one sentence with needed and available numbers; empty when it can.
std::vector<std::string> refusals(const Request& request);

// Throws Error{refused} with the refusals joined by newlines.
Plan make_plan(const Request& request);

// Engines [start, count] against `trainer_ranks` devices: the colocated ones are a prefix, the first that sticks out and all after it overflow.
std::vector<Slot> make_slots(const std::vector<Engine>& engines);

// UUID of a virtual CPU device: a pure function of run id, node and index, in the 8-4-4-4-12 form.
std::string cpu_device_uuid(const std::string& run_id, int node, int index);

}  // namespace vime::placement
