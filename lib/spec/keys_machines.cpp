// Where it runs: devices, engines, pushes.
#include "devices/gpu_share.hpp"
#include "spec/key_table.hpp"

namespace vime::spec::table {

Section placement() {
  const Limits devices = between(1, 100000);
  return {
      "placement",
      "Which devices the trainer ranks and the engines get.",
      {{.name = "device",
        .field = FIELD(placement.device),
        .doc = "`cuda`: NVIDIA GPUs. `cpu`: any number of virtual devices on this machine.",
        .choices = {"auto", "cpu", "cuda"},
        .derived = "`cuda` where this machine has as many GPUs as the job needs, else `cpu`"},
       {.name = "nodes",
        .field = FIELD(placement.nodes),
        .doc = "Devices of each node, for example `[4, 8, 2]`.",
        .limits = devices,
        .derived = "as many devices as the job needs"},
       {.name = "device_uuids",
        .field = FIELD(placement.device_uuids),
        .doc = "The GPUs in the order of the devices: 8-4-4-4-12 hexadecimal digits in lower case, without prefix. Of "
               "a share (`devices_per_gpu`): the GPU's with `/0of4`, `/1of4`, ... behind.",
        .derived = "those that CUDA sees, the first ones (`CUDA_VISIBLE_DEVICES` is honoured)"},
       {.name = "devices_per_gpu",
        .field = FIELD(placement.devices_per_gpu),
        .doc = "Devices on each GPU, to try a layout on fewer GPUs than it has devices: they take turns, and each has "
               "an equal part of the memory; with the embedded engine only.",
        .limits = between(1, devices::kMostPerGpu)},
       {.name = "colocate",
        .field = FIELD(placement.colocate),
        .doc =
            "Engines share the trainer's devices, beginning with device 0; otherwise they lie behind the trainer's."},
       {.name = "actor_num_nodes",
        .field = FIELD(placement.actor_num_nodes),
        .doc = "Nodes of the trainer.",
        .limits = devices},
       {.name = "actor_num_gpus_per_node",
        .field = FIELD(placement.actor_num_gpus_per_node),
        .doc = "Trainer ranks (one per device) on each of its nodes.",
        .limits = devices},
       {.name = "rollout_num_gpus",
        .field = FIELD(placement.rollout_num_gpus),
        .doc =
            "Devices of all engines together; more than the trainer's are allowed when colocated (overflow engines).",
        .limits = devices,
        .derived = "the trainer's number when colocated; required otherwise"},
       {.name = "rollout_num_gpus_per_engine",
        .field = FIELD(placement.rollout_num_gpus_per_engine),
        .doc = "Devices of one engine, each with one worker.",
        .limits = devices},
       {.name = "allow_engines_across_nodes",
        .field = FIELD(placement.allow_engines_across_nodes),
        .doc = "Let an engine span nodes; otherwise one that would is refused."}}};
}

Section engine() {
  const Limits timeout = between(1, 7 * 86400e3);
  return {
      "engine",
      "The rollout engines.",
      {{.name = "backend",
        .field = FIELD(engine.backend),
        .doc = "`embedded`: vime's own engine. `vllm`: vLLM servers (0.21 or later), which vime starts. `external`: "
               "vLLM servers that run already, at `urls`; vime never ends them.",
        .choices = {"embedded", "vllm", "external"}},
       {.name = "max_model_len",
        .field = FIELD(engine.max_model_len),
        .doc = "Most tokens of prompt and response together; null = what the longest prompt and response need.",
        .limits = between(2, 1e8)},
       {.name = "max_num_seqs",
        .field = FIELD(engine.max_num_seqs),
        .doc = "Sequences that an engine computes at once; more requests wait their turn.",
        .limits = between(1, 65536)},
       {.name = "gpu_memory_utilization",
        .field = FIELD(engine.gpu_memory_utilization),
        .doc = "Share of a GPU's memory that an engine worker may take for weights, KV cache and work.",
        .limits = {.least = 0, .most = 1, .least_excluded = true},
        .derived = "0.6 beside a trainer on the same GPU, else 0.9"},
       {.name = "logprobs_mode",
        .field = FIELD(engine.logprobs_mode),
        .doc = "`processed_logprobs`: after the temperature. `raw_logprobs`: before it.",
        .choices = {"processed_logprobs", "raw_logprobs"}},
       {.name = "startup_timeout",
        .field = FIELD(engine.startup_timeout),
        .doc = "How long an engine may take until it serves.",
        .limits = timeout},
       {.name = "request_timeout",
        .field = FIELD(engine.request_timeout),
        .doc = "How long one request may take.",
        .limits = timeout},
       {.name = "server_concurrency",
        .field = FIELD(engine.server_concurrency),
        .doc = "Requests in flight at an engine; more wait in the driver, which sends them to the engine with room.",
        .limits = between(1, 65536),
        .derived = "512, or `max_num_seqs` where that is more"},
       {.name = "vllm_command",
        .field = FIELD(engine.vllm_command),
        .doc = "How a vLLM server is started: the program and its first arguments; model and flags follow."},
       {.name = "vllm_args",
        .field = FIELD(engine.vllm_args),
        .doc = "Further flags of `vllm serve`, for example `[--enforce-eager]`; those that vime sets itself are "
               "refused (`vime plan` prints the whole command)."},
       {.name = "env",
        .field = FIELD(engine.env),
        .doc = "Environment of the engines that vime starts, besides vime's own: `NAME=value` each."},
       {.name = "urls",
        .field = FIELD(engine.urls),
        .doc = "Addresses of external engines, `http://host:port` each, in the order of the engines."},
       {.name = "api_key_env",
        .field = FIELD(engine.api_key_env),
        .doc = "Name of the environment variable that holds the servers' API key; the key itself stands nowhere."}}};
}

Section weight_sync() {
  return {
      "weight_sync",
      "Pushing the trainer's weights to the engines.",
      {{.name = "transport",
        .field = FIELD(weight_sync.transport),
        .doc =
            "On GPUs `cuda_ipc`, for colocated engines, and `nccl`, for others; on CPU devices `shm`, shared "
            "memory for colocated engines, and `tcp`, the network. `disk`: engines load a model folder that is written "
            "for every push. `auto`: for each engine the one that fits (vLLM without GPUs: `disk`).",
        .choices = {"auto", "shm", "tcp", "cuda_ipc", "nccl", "disk"}},
       {.name = "update_weight_buffer_size",
        .field = FIELD(weight_sync.update_weight_buffer_size),
        .doc = "Bytes sent at once; a larger tensor is sent alone.",
        .limits = between(1, 1099511627776.0)},
       {.name = "disk_dir",
        .field = FIELD(weight_sync.disk_dir),
        .doc = "Where model folders for `disk` are written, in a folder of the run's own, seen by trainer and engines "
               "under the "
               "same path; null = `weights` in the run directory. The two newest are kept while the run lasts."},
       {.name = "timeout",
        .field = FIELD(weight_sync.timeout),
        .doc = "How long one push may take.",
        .limits = between(1, 7 * 86400e3)}}};
}

Section offload() {
  return {"offload",
          "What makes room on a GPU that trainer and engine share.",
          {{.name = "train",
            .field = FIELD(offload.train),
            .doc = "The trainer's optimizer state, gradients and master weights go to the host's memory while engines "
                   "generate.",
            .derived = "true for colocated engines on GPUs"},
           {.name = "rollout",
            .field = FIELD(offload.rollout),
            .doc = "Engines give up their weights and KV cache while the trainer works.",
            .derived = "true for colocated engines on GPUs"}}};
}

}  // namespace vime::spec::table
