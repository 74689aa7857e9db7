#include "spec/placement_request.hpp"

namespace vime::spec {

placement::Request placement_request(const ExperimentSpec& spec, const std::string& run_id) {
  const Placement& from = spec.placement;
  placement::Request request;
  for (const int64_t devices : from.nodes) request.nodes.push_back(static_cast<int>(devices));
  request.colocate = from.colocate;
  request.actor_num_nodes = static_cast<int>(from.actor_num_nodes);
  request.actor_num_gpus_per_node = static_cast<int>(from.actor_num_gpus_per_node);
  request.rollout_num_gpus = static_cast<int>(from.rollout_num_gpus);
  request.rollout_num_gpus_per_engine = static_cast<int>(from.rollout_num_gpus_per_engine);
  request.tensor_model_parallel_size = static_cast<int>(spec.trainer.tensor_model_parallel_size);
  request.pipeline_model_parallel_size = static_cast<int>(spec.trainer.pipeline_model_parallel_size);
  request.context_parallel_size = static_cast<int>(spec.trainer.context_parallel_size);
  request.allow_engines_across_nodes = from.allow_engines_across_nodes;
  request.run_id = run_id;
  request.device_uuids = from.device_uuids;
  return request;
}

std::string transport_of(const ExperimentSpec& spec, const placement::Engine& engine) {
  if (spec.weight_sync.transport != "auto") return spec.weight_sync.transport;
  if (spec.placement.device == "cuda") return engine.colocated ? "cuda_ipc" : "nccl";
  if (spec.engine.backend != "embedded") return "disk";  // vLLM knows no other way without GPUs
  return engine.colocated ? "shm" : "tcp";
}

Route route_of(const ExperimentSpec& spec, const placement::Engine& engine) {
  const std::string transport = transport_of(spec, engine);
  if (transport == "disk") return Route::disk;
  return transport == "tcp" || transport == "nccl" ? Route::network : Route::memory;
}

}  // namespace vime::spec
