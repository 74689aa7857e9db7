// Where everything runs: pure functions from an inventory of nodes to devices, trainer ranks, engines and slots.
// Nothing is started. Devices are numbered through all nodes in order. Trainer rank r owns device r. Engines lie one
// behind the other: from device 0 when they share the trainer's devices (colocated), from the first device behind the
// trainer's otherwise. Safe from any thread; nothing blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime::placement {

struct Device {
  int global = 0;  // index over all nodes
  int node = 0;
  int index = 0;     // on its node
  std::string uuid;  // 8-4-4-4-12, lower case; of a share of a GPU: with "/0of4" and the like behind
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
  int start = 0;           // first device (global)
  int count = 0;           // devices, one worker each
  bool colocated = false;  // wholly inside the trainer's devices, and so is every engine before it
  std::vector<int> nodes;  // nodes it touches; more than one only when asked for
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
  std::string run_id;                     // for the UUIDs of CPU devices
  std::vector<std::string> device_uuids;  // of GPUs, one for each device; empty: CPU devices
};

struct Plan {
  std::vector<Device> devices;
  Layout layout;
  std::vector<TrainerRank> ranks;
  std::vector<Engine> engines;
  std::vector<Slot> slots;            // of the colocated engines, in engine order
  std::vector<int> overflow_engines;  // ids of all others; they get weights over the network from rank 0
};

// More devices than this are refused: a slip of the keyboard should not fill the memory.
inline constexpr int64_t kMaxDevices = 100000;

// Why a request cannot be placed.
struct Refusal {
  std::string key;       // the field of Request to change
  std::string sentence;  // with the needed and the available numbers
};

// Every reason, in the order of Request's fields; empty when the request can be placed.
std::vector<Refusal> refusals(const Request& request);

// Throws Error{refused} with the sentences joined by newlines.
Plan make_plan(const Request& request);

// Trainer ranks in Megatron's default order: tp changes fastest, then cp, dp and pp. DP = ranks / (TP * PP * CP), which
// must divide.
std::vector<TrainerRank> make_ranks(int count, int tp, int pp, int cp);

// Sets `colocated` by the prefix rule: engines that lie wholly in the trainer's devices [0, trainer_ranks) are
// colocated up to the first that sticks out; that one and all after it are overflow, wherever they lie.
void mark_colocated(std::vector<Engine>& engines, int trainer_ranks);

// One slot for each engine marked as colocated, in engine order.
std::vector<Slot> make_slots(const std::vector<Engine>& engines);

// UUID of a virtual CPU device: a pure function of run id, node and index, in the 8-4-4-4-12 form.
std::string cpu_device_uuid(const std::string& run_id, int node, int index);

}  // namespace vime::placement
