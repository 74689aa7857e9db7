#include "fleet/launch.hpp"

#include "base/strings.hpp"

namespace vime::fleet {

std::string engine_role(int id) {
  return "engine-" + std::to_string(id);
}

std::string trainer_role(int rank) {
  return "trainer-" + std::to_string(rank);
}

proc::Command engine_command(const EngineLaunch& launch) {
  proc::Command command;
  command.role = engine_role(launch.id);
  command.argv = {launch.vime_binary,
                  "engine",
                  "--model",
                  launch.model_dir,
                  "--load-format",
                  launch.load_weights ? "auto" : "dummy",
                  "--served-model-name",
                  launch.served_model,
                  "--run-id",
                  launch.run_id,
                  "--device-uuids",
                  join(launch.device_uuids, ","),
                  "--max-model-len",
                  std::to_string(launch.max_model_len),
                  "--max-num-seqs",
                  std::to_string(launch.max_num_seqs),
                  "--logprobs-mode",
                  launch.logprobs_mode,
                  "--transfer-timeout-ms",
                  std::to_string(launch.transfer_timeout_ms)};
  if (launch.device != "cpu") {
    command.argv.insert(command.argv.end(), {"--device", launch.device, "--gpu-memory-utilization",
                                             format_number(launch.gpu_memory_utilization)});
    if (launch.deterministic) command.argv.push_back("--deterministic");
  }
  command.env["VIME_RUN_TOKEN"] = launch.token;
  command.log_path = launch.log_dir + "/" + command.role + ".log";
  return command;
}

}  // namespace vime::fleet
