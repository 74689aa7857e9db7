// `vime bench weight-sync`: pushes of public models' tensor lists with random contents from a trainer into an engine in
// another process, against plain copies or broadcasts of the same bytes in the same run. Every push brings new
// contents, and the engine's checksums are compared with the trainer's.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::bench {

struct WeightSyncOptions {
  std::string model = "all";
  std::string transport = "ipc";
  int tensor_parallel = 1;  // of the trainer
  int engine_workers = 0;   // of every engine; colocated ones share the trainer's devices. 0: one over the network, as
                            // many as ranks colocated
  bool whole_tensors = false;  // colocated engines are shown whole tensors that the ranks bring together, as vLLM is
  int repeat = 5;              // pushes after the first
  uint64_t buffer_bytes = uint64_t{512} << 20;
  uint64_t chunk_bytes = uint64_t{1} << 30;
  bool json = false;                        // the figures as JSON instead of a table
  std::vector<std::string> engine_command;  // starts serve_weights with one more argument, its options
};

// {"model", "transport", "tensor_parallel", "engine_workers", "whole_tensors", "repeat", "buffer_bytes", "chunk_bytes",
// "json", "engine_command"}
WeightSyncOptions weight_sync_options(const Json& json);

// Prints the figures; the exit status: 3 when contents differ.
int weight_sync(const WeightSyncOptions& options);

}  // namespace vime::bench
