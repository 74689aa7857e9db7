#include "fleet/vllm_launch.hpp"

#include <algorithm>

#include "base/strings.hpp"
#include "fleet/launch.hpp"

namespace vime::fleet {
namespace {

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_./:=,@+") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

constexpr int64_t kDefaultBatchTokens = 2048;
constexpr int64_t kLargeBatchTokens = 8192;

bool names_flag(const std::vector<std::string>& args, const std::string& flag) {
  return std::any_of(args.begin(), args.end(), [&](const std::string& argument) { return flag_of(argument) == flag; });
}

void set_environment(const VllmLaunch& launch, std::map<std::string, std::string>& env) {
  env["VLLM_SERVER_DEV_MODE"] = "1";  // without it the routes of a push are not there
  if (launch.transfer_backend == "ipc") env["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1";  // handles are pickles
  env["HF_HUB_OFFLINE"] = "1";
  env["VLLM_NO_USAGE_STATS"] = "1";
  env["NCCL_NVLS_ENABLE"] = "0";
  env["PYTHONUNBUFFERED"] = "1";
  env["VLLM_API_KEY"] = launch.api_key;  // also where there is none: that of vime's own environment is not meant
  std::vector<std::string> visible;
  for (const std::string& uuid : launch.device_uuids) visible.push_back("GPU-" + uuid);
  env["CUDA_VISIBLE_DEVICES"] = join(visible, ",");  // none for a server that is to stay on the CPU
  for (const std::string& entry : launch.env) {
    const std::size_t equals = entry.find('=');
    env[entry.substr(0, equals)] = equals == std::string::npos ? "" : entry.substr(equals + 1);
  }
}

}  // namespace

proc::Command vllm_command(const VllmLaunch& launch) {
  proc::Command command;
  command.role = engine_role(launch.id);
  command.argv = launch.command;
  const auto add = [&](std::initializer_list<std::string> words) {
    command.argv.insert(command.argv.end(), words.begin(), words.end());
  };
  add({launch.model_dir, "--host", "127.0.0.1", "--port", std::to_string(launch.port)});
  add({"--served-model-name", launch.served_model, "--dtype", launch.dtype});
  add({"--load-format", launch.load_weights ? "auto" : "dummy"});
  add({"--max-model-len", std::to_string(launch.max_model_len), "--max-num-seqs", std::to_string(launch.max_num_seqs)});
  // A step must have room for one token of each; a server's default is 2048 tokens, 8192 on large GPUs.
  if (launch.max_num_seqs > kDefaultBatchTokens && !names_flag(launch.args, "--max-num-batched-tokens"))
    add({"--max-num-batched-tokens", std::to_string(std::max(launch.max_num_seqs, kLargeBatchTokens))});
  add({"--tensor-parallel-size", std::to_string(launch.tensor_parallel_size)});
  add({"--logprobs-mode", launch.logprobs_mode, "--generation-config", "vllm", "--seed", std::to_string(launch.seed)});
  if (!launch.device_uuids.empty()) {
    add({"--gpu-memory-utilization", format_number(launch.gpu_memory_utilization)});
    if (launch.sleeps) add({"--enable-sleep-mode"});
  }
  if (!launch.transfer_backend.empty()) {
    add({"--weight-transfer-config", Json({{"backend", launch.transfer_backend}}).dump()});
  }
  command.argv.insert(command.argv.end(), launch.args.begin(), launch.args.end());
  set_environment(launch, command.env);
  command.log_path = launch.log_dir + "/" + command.role + ".log";
  return command;
}

std::string command_text(const proc::Command& command) {
  std::vector<std::string> words;
  for (const auto& [name, value] : command.env)
    words.push_back(name + "=" + (names_secret(name) ? "***" : shell_word(value)));
  for (const std::string& word : command.argv) words.push_back(shell_word(word));
  return join(words, " ");
}

Json command_json(const proc::Command& command) {
  Json env = Json::object();
  for (const auto& [name, value] : command.env) env[name] = names_secret(name) ? "***" : value;
  return {{"env", env}, {"argv", command.argv}};
}

}  // namespace vime::fleet
