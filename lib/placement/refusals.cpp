// The reasons why a request cannot be placed. Numbers are compared in 64 bits: products of two legal fields need not
// fit in 32.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "placement/placement.hpp"

namespace vime::placement {
namespace {

std::string text(int64_t number) {
  return std::to_string(number);
}

std::string counted(int64_t number, const std::string& noun) {
  return text(number) + " " + noun + (number == 1 ? "" : "s");
}

int64_t trainer_ranks(const Request& request) {
  return int64_t{request.actor_num_nodes} * request.actor_num_gpus_per_node;
}

int64_t available_devices(const Request& request) {
  return std::accumulate(request.nodes.begin(), request.nodes.end(), int64_t{0});
}

// "4 + 8 + 2", cut short for long lists
std::string sum_text(const std::vector<int>& nodes) {
  std::string sum;
  for (size_t i = 0; i < nodes.size() && i < 8; ++i) sum += (i > 0 ? " + " : "") + text(nodes[i]);
  return nodes.size() > 8 ? sum + " + ..." : sum;
}

void refuse_small_numbers(const Request& request, std::vector<Refusal>& found) {
  if (request.nodes.empty()) found.push_back({"nodes", "nodes lists no node; at least one with one device is needed"});
  for (size_t i = 0; i < request.nodes.size(); ++i) {
    if (request.nodes[i] >= 1) continue;
    found.push_back({"nodes", "nodes gives node " + text(static_cast<int64_t>(i)) + " " + text(request.nodes[i]) +
                                  " devices; at least 1 is needed"});
    break;
  }
  const std::pair<const char*, int> counts[] = {
      {"actor_num_nodes", request.actor_num_nodes},
      {"actor_num_gpus_per_node", request.actor_num_gpus_per_node},
      {"rollout_num_gpus", request.rollout_num_gpus},
      {"rollout_num_gpus_per_engine", request.rollout_num_gpus_per_engine},
      {"tensor_model_parallel_size", request.tensor_model_parallel_size},
      {"pipeline_model_parallel_size", request.pipeline_model_parallel_size},
      {"context_parallel_size", request.context_parallel_size},
  };
  for (const auto& [key, count] : counts) {
    if (count >= 1) continue;
    const bool no_engines = key == std::string("rollout_num_gpus");
    found.push_back({key, std::string(key) + " is " + text(count) + "; at least 1 is needed" +
                              (no_engines ? ": a run without engines has nothing to train on" : "")});
  }
}

void refuse_too_many(const Request& request, std::vector<Refusal>& found) {
  const std::pair<const char*, int64_t> totals[] = {{"nodes", available_devices(request)},
                                                    {"actor_num_gpus_per_node", trainer_ranks(request)},
                                                    {"rollout_num_gpus", request.rollout_num_gpus}};
  for (const auto& [key, total] : totals) {
    if (total <= kMaxDevices) continue;
    found.push_back({key, std::string(key) + " comes to " + text(total) + " devices; at most " + text(kMaxDevices) +
                              " can be placed"});
  }
}

void refuse_missing_devices(const Request& request, std::vector<Refusal>& found) {
  const int64_t available = available_devices(request);
  const int64_t trainer = trainer_ranks(request);
  const int64_t rollout = request.rollout_num_gpus;
  const std::string have = "but nodes has " + counted(available, "device") +
                           (request.nodes.size() > 1 ? " (" + sum_text(request.nodes) + ")" : "");
  const std::string trainer_sum =
      text(request.actor_num_nodes) + " x " + text(request.actor_num_gpus_per_node) + " = " + text(trainer);
  if (trainer > available) {
    found.push_back({"actor_num_gpus_per_node", "the trainer needs " + trainer_sum + " devices " +
                                                    "(actor_num_nodes x actor_num_gpus_per_node), " + have});
  }
  if (request.colocate && rollout > available) {
    found.push_back(
        {"rollout_num_gpus", "the engines need rollout_num_gpus = " + counted(rollout, "device") + ", " + have});
  }
  if (!request.colocate && trainer <= available && trainer + rollout > available) {
    found.push_back({"rollout_num_gpus", "the trainer and the engines need " + text(trainer) + " + " + text(rollout) +
                                             " = " + text(trainer + rollout) +
                                             " devices of their own (colocate is false), " + have});
  }
}

// Ranks take devices in order, so the node sizes decide on which node a rank really lies; a layout that says otherwise
// is refused.
void refuse_uneven_trainer(const Request& request, std::vector<Refusal>& found) {
  const int64_t blocks = request.actor_num_nodes;
  const int64_t block = request.actor_num_gpus_per_node;
  if (trainer_ranks(request) > available_devices(request)) return;
  if (blocks > static_cast<int64_t>(request.nodes.size())) {
    found.push_back({"actor_num_nodes", "actor_num_nodes is " + text(blocks) + ", but nodes lists only " +
                                            counted(static_cast<int64_t>(request.nodes.size()), "node")});
    return;
  }
  for (int64_t node = 0; node < blocks; ++node) {
    const int64_t devices = request.nodes[static_cast<size_t>(node)];
    const bool last = node + 1 == blocks;
    if (last ? devices >= block : devices == block) continue;
    found.push_back({"actor_num_gpus_per_node",
                     "the trainer asks for " + counted(block, "device") + " on each of its " + counted(blocks, "node") +
                         ", but node " + text(node) + " has " + text(devices) +
                         "; ranks take the devices in order, so every trainer node but the last must have " +
                         "exactly actor_num_gpus_per_node devices and the last at least as many"});
    return;
  }
}

void refuse_layout(const Request& request, std::vector<Refusal>& found) {
  const int64_t tp = request.tensor_model_parallel_size, pp = request.pipeline_model_parallel_size,
                cp = request.context_parallel_size;
  const int64_t limit = int64_t{1} << 31;
  const int64_t ranks = trainer_ranks(request);
  const int64_t model = std::min(std::min(tp * pp, limit) * cp, limit);
  if (ranks % model == 0) return;
  const int64_t below = ranks / model * model;
  found.push_back({"tensor_model_parallel_size",
                   "TP " + text(tp) + " x PP " + text(pp) + " x CP " + text(cp) + " = " + text(model) +
                       " does not divide the trainer's " + counted(ranks, "rank") + "; the nearest that it divides " +
                       (below > 0 ? "are " + text(below) + " and " : "is ") + text(below + model)});
}

// The node of a device, and the first device behind that node.
struct NodeOfDevice {
  int64_t node = 0;
  int64_t end = 0;
};

NodeOfDevice next_node(const std::vector<int>& nodes, NodeOfDevice at, int64_t device) {
  while (device >= at.end) {
    ++at.node;
    at.end += nodes[static_cast<size_t>(at.node)];
  }
  return at;
}

void refuse_straddling_engines(const Request& request, int64_t first_device, std::vector<Refusal>& found) {
  const int64_t span = request.rollout_num_gpus_per_engine;
  const int64_t engines = request.rollout_num_gpus / span;
  if (request.allow_engines_across_nodes || first_device + engines * span > available_devices(request)) return;
  const int64_t largest = *std::max_element(request.nodes.begin(), request.nodes.end());
  if (span > largest) {
    found.push_back(
        {"rollout_num_gpus_per_engine", "an engine of rollout_num_gpus_per_engine = " + text(span) +
                                            " devices does not fit on one node: the largest has " + text(largest) +
                                            "; set allow_engines_across_nodes to true if engines may span nodes"});
    return;
  }
  NodeOfDevice at{0, request.nodes[0]};
  for (int64_t engine = 0; engine < engines; ++engine) {
    const int64_t start = first_device + engine * span;
    at = next_node(request.nodes, at, start);
    if (start + span <= at.end) continue;
    const int64_t last_node = next_node(request.nodes, at, start + span - 1).node;
    found.push_back({"rollout_num_gpus_per_engine",
                     "engine " + text(engine) + " would take devices " + text(start) + " to " + text(start + span - 1) +
                         ", which lie on nodes " + text(at.node) + " to " + text(last_node) +
                         " (devices per node: " + sum_text(request.nodes) +
                         "); choose rollout_num_gpus_per_engine so that engines end where nodes end, " +
                         "or set allow_engines_across_nodes to true"});
    return;
  }
}

void refuse_engines(const Request& request, std::vector<Refusal>& found) {
  const int64_t rollout = request.rollout_num_gpus;
  const int64_t span = request.rollout_num_gpus_per_engine;
  if (span > rollout) {
    found.push_back({"rollout_num_gpus_per_engine",
                     "an engine of rollout_num_gpus_per_engine = " + counted(span, "device") +
                         " is larger than all of rollout_num_gpus = " + text(rollout) +
                         "; choose a number that divides " + text(rollout) + ", or more rollout_num_gpus"});
    return;
  }
  if (rollout % span != 0) {
    const int64_t below = rollout / span * span;
    found.push_back({"rollout_num_gpus", "rollout_num_gpus = " + text(rollout) +
                                             " is no multiple of rollout_num_gpus_per_engine = " + text(span) +
                                             "; the nearest " + (below > 0 ? "are " + text(below) + " and " : "is ") +
                                             text(below + span)});
    return;
  }
  refuse_straddling_engines(request, request.colocate ? 0 : trainer_ranks(request), found);
}

}  // namespace

std::vector<Refusal> refusals(const Request& request) {
  std::vector<Refusal> found;
  refuse_small_numbers(request, found);
  if (found.empty()) refuse_too_many(request, found);
  if (!found.empty()) return found;  // the sums below need sane numbers
  refuse_missing_devices(request, found);
  refuse_uneven_trainer(request, found);
  refuse_layout(request, found);
  refuse_engines(request, found);
  return found;
}

}  // namespace vime::placement
