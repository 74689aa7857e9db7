#include "worker_main.hpp"

#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "bench/weight_sync.hpp"
#include "bench/weights_engine.hpp"
#include "executor/bench_generate.hpp"
#include "proc/process.hpp"
#include "trainer/bench_train.hpp"

namespace {

using namespace vime;

executor::EngineOptions engine_options(const Json& json) {
  const std::string what = "engine options";
  executor::EngineOptions options;
  options.workers.model_dir = json_string(json, "model_dir", what);
  options.workers.load_weights = json_string(json, "load_format", what) == "auto";
  options.workers.device = json_string(json, "device", what);
  options.workers.dtype = json_string(json, "dtype", what);
  // On the CPU float32 is both exact and fast.
  if (options.workers.dtype == "auto" && options.workers.device == "cpu") options.workers.dtype = "float32";
  options.workers.deterministic = json_bool(json, "deterministic", what);
  options.workers.gpu_memory_utilization = json_number(json, "gpu_memory_utilization", what);
  for (const Json& uuid : json_member(json, "device_uuids", what))
    options.workers.device_uuids.push_back(uuid.get<std::string>());
  options.workers.run_id = json_string(json, "run_id", what);
  options.workers.max_model_len = json_int(json, "max_model_len", what);
  options.workers.max_num_seqs = json_int(json, "max_num_seqs", what);
  options.workers.logprobs_mode = json_string(json, "logprobs_mode", what) == "raw_logprobs"
                                      ? executor::LogprobsMode::raw
                                      : executor::LogprobsMode::processed;
  options.workers.control_timeout = std::chrono::milliseconds(json_int(json, "transfer_timeout_ms", what));
  options.served_model_name = json_string(json, "served_model_name", what);
  options.address = json_string(json, "address", what);
  options.port = static_cast<uint16_t>(json_int(json, "port", what));
  options.token = json_string(json, "token", what);
  return options;
}

// {"what": which benchmark, ...}; with "generate" and "train" also {"json": whether for machines}
int run_bench(const Json& json) {
  const std::string what = json_string(json, "what", "bench options");
  if (what == "weight-sync") return bench::weight_sync(bench::weight_sync_options(json));
  if (what == "weight-sync-engine") return bench::serve_weights(json);
  const bool for_machines = json_bool(json, "json", "bench options");
  Json result;
  std::string text;
  if (what == "generate") {
    result = executor::bench_generate(executor::generate_bench_options(json));
    text = executor::generate_bench_text(result);
  } else if (what == "train") {
    result = trainer::bench_train(trainer::train_bench_options(json));
    text = trainer::train_bench_text(result);
  } else {
    throw Error(ErrorKind::internal, "unknown benchmark " + what);
  }
  std::fputs(for_machines ? (result.dump(2) + "\n").c_str() : text.c_str(), stdout);
  return 0;
}

}  // namespace

int vime::worker_main(const char* role, const char* options, int argc, char** argv, const executor::WrapExecutor& wrap,
                      const trainer::MakeRank& make_rank) {
  try {
    proc::remember_arguments(argc, argv);
    const Json json = parse_json(options, "worker options", ErrorKind::internal);
    if (std::string(role) == "engine") return executor::serve_engine(engine_options(json), wrap);
    if (std::string(role) == "trainer") return trainer::serve_trainer(trainer::trainer_options(json), make_rank);
    if (std::string(role) == "bench") return run_bench(json);
    throw Error(ErrorKind::internal, std::string("unknown worker role ") + role);
  } catch (const Error& error) {
    std::fprintf(stderr, "vime %s: %s\n", role, error.what());
    return exit_status(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vime %s: %s\n", role, error.what());
    return exit_status(ErrorKind::internal);
  }
}
