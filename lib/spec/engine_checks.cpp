// Which engines, and what each kind needs: vLLM servers that vime starts, servers that run already, vime's own.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "base/strings.hpp"
#include "spec/checks.hpp"
#include "spec/placement_request.hpp"
#include "spec/yaml_tree.hpp"

namespace vime::spec {
namespace {

constexpr milliseconds kVllmStartup{20 * 60'000};  // loading, compiling and capturing take minutes
constexpr milliseconds kExternalAnswer{60'000};    // of a server that runs already

// Flags that vime sets itself: see fleet/vllm_launch.hpp.
const std::vector<std::string>& own_flags() {
  static const std::vector<std::string> flags = {"--host",
                                                 "--port",
                                                 "--served-model-name",
                                                 "--dtype",
                                                 "--load-format",
                                                 "--max-model-len",
                                                 "--max-num-seqs",
                                                 "--tensor-parallel-size",
                                                 "-tp",
                                                 "--logprobs-mode",
                                                 "--generation-config",
                                                 "--seed",
                                                 "--gpu-memory-utilization",
                                                 "--enable-sleep-mode",
                                                 "--weight-transfer-config",
                                                 "--api-key",
                                                 "--config"};
  return flags;
}

// Flags that give a server more workers than its tensor parallel ones.
const std::vector<std::string>& worker_flags() {
  static const std::vector<std::string> flags = {"--data-parallel-size",
                                                 "-dp",
                                                 "--pipeline-parallel-size",
                                                 "-pp",
                                                 "--prefill-context-parallel-size",
                                                 "-pcp",
                                                 "--nnodes",
                                                 "-n"};
  return flags;
}

bool contains(const std::vector<std::string>& flags, const std::string& flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

// Keys of one kind of engine; a resolved spec has them all, at their defaults.
void refuse_unused(const ExperimentSpec& spec, Problems& problems) {
  const Engine& engine = spec.engine;
  const Engine usual;
  const std::string& backend = engine.backend;
  const bool starts = backend == "vllm", external = backend == "external";
  for (const auto& [key, changed, used] :
       {std::tuple{"engine.vllm_command", engine.vllm_command != usual.vllm_command, starts},
        std::tuple{"engine.vllm_args", !engine.vllm_args.empty(), starts},
        std::tuple{"engine.env", !engine.env.empty(), starts},
        std::tuple{"engine.urls", !engine.urls.empty(), external},
        std::tuple{"engine.api_key_env", engine.api_key_env.has_value(), starts || external}}) {
    if (!changed || used) continue;
    problems.add_at(key, quoted(key) + " is given, but \"engine.backend\" is " + backend + "; it would not be used");
  }
}

void check_arguments(const ExperimentSpec& spec, Problems& problems) {
  if (spec.engine.vllm_command.empty()) {
    problems.add_at("engine.vllm_command",
                    "\"engine.vllm_command\" is empty; expected a program, for example [vllm, serve]");
  }
  for (const std::string& argument : spec.engine.vllm_args) {
    const std::string flag = flag_of(argument);
    if (contains(own_flags(), flag)) {
      problems.add_at("engine.vllm_args", "\"engine.vllm_args\" has " + flag + ", which vime sets itself");
    } else if (contains(worker_flags(), flag)) {
      problems.add_at("engine.vllm_args", "\"engine.vllm_args\" has " + flag +
                                              "; the GPUs of one engine are tensor parallel: set "
                                              "\"placement.rollout_num_gpus_per_engine\" for larger engines, and "
                                              "\"placement.rollout_num_gpus\" for more of them");
    }
  }
  for (const std::string& entry : spec.engine.env) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.add_at("engine.env", "\"engine.env\" has " + quoted(entry) + "; expected NAME=value");
    } else if (names_secret(entry.substr(0, equals))) {
      problems.add_at("engine.env", "\"engine.env\" has " + entry.substr(0, equals) +
                                        ", a secret, which would stand in the run directory; export it instead: "
                                        "servers inherit the environment of vime");
    }
  }
}

void check_urls(const ExperimentSpec& spec, Problems& problems) {
  const int64_t engines =
      spec.placement.rollout_num_gpus / std::max<int64_t>(spec.placement.rollout_num_gpus_per_engine, 1);
  if (static_cast<int64_t>(spec.engine.urls.size()) != engines) {
    problems.add_at("engine.urls", "\"engine.urls\" has " + std::to_string(spec.engine.urls.size()) +
                                       " addresses, but there are " + std::to_string(engines) +
                                       " engines (placement.rollout_num_gpus / rollout_num_gpus_per_engine)");
  }
  std::set<std::string> seen;
  for (const std::string& url : spec.engine.urls) {
    if (!seen.insert(url).second)
      problems.add_at("engine.urls", "\"engine.urls\" has " + quoted(url) + " twice; an engine is a server of its own");
    const bool near = url.find("://127.") != std::string::npos || url.find("://localhost") != std::string::npos;
    if (!near && spec.placement.device == "cuda" && spec.weight_sync.transport != "disk") {
      problems.add_at("engine.urls", "\"engine.urls\" has " + quoted(url) +
                                         ", but NCCL groups are made on one machine in this version; use loopback, or "
                                         "weight_sync.transport disk with a shared weight_sync.disk_dir");
    }
    const bool web = url.starts_with("http://") || url.starts_with("https://");
    if (web && !url.ends_with("/")) continue;
    problems.add_at("engine.urls", "\"engine.urls\" has " + quoted(url) + "; expected http://host:port");
  }
  if (spec.placement.colocate) {
    problems.add_at("placement.colocate",
                    "\"engine.backend\" is external, whose servers have devices of their own, but "
                    "\"placement.colocate\" is true");
  }
}

void check_api_key(const ExperimentSpec& spec, Problems& problems) {
  if (!spec.engine.api_key_env) return;
  const char* const key = std::getenv(spec.engine.api_key_env->c_str());
  if (key != nullptr && *key != '\0') return;
  problems.add_at("engine.api_key_env", "\"engine.api_key_env\" is " + *spec.engine.api_key_env +
                                            ", but there is no such environment variable, or it is empty");
}

}  // namespace

void derive_engine(ExperimentSpec& spec, const Problems& problems) {
  if (!problems.is_given("engine.server_concurrency"))
    spec.engine.server_concurrency = std::max(Engine().server_concurrency, spec.engine.max_num_seqs);
  if (spec.engine.backend != "embedded" && !problems.is_given("engine.startup_timeout"))
    spec.engine.startup_timeout = spec.engine.backend == "external" ? kExternalAnswer : kVllmStartup;
}

void check_engine(const ExperimentSpec& spec, Problems& problems) {
  if (!problems.sound({"engine.backend", "placement.rollout_num_gpus", "placement.rollout_num_gpus_per_engine"}))
    return;
  refuse_unused(spec, problems);
  if (spec.engine.backend == "embedded") return;
  if (spec.deterministic) {
    problems.add_at("deterministic",
                    "\"deterministic\" is true, which vime's own engine alone can be held to; "
                    "\"engine.backend\" is " +
                        spec.engine.backend);
  }
  if (spec.engine.backend == "vllm") check_arguments(spec, problems);
  if (spec.engine.backend == "external") check_urls(spec, problems);
  check_api_key(spec, problems);
}

}  // namespace vime::spec
