#include "loop/processes.hpp"

#include <map>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "fleet/launch.hpp"
#include "loop/vllm_servers.hpp"

namespace vime::loop {
namespace {

// Config and tokenizer for the engines, which get their weights by the first push.
void write_model_folder(const Prepared& prepared, const fs::path& dir) {
  write_file_atomic(dir / "config.json",
                    arch::config_json(prepared.config, prepared.spec.trainer.dtype).dump(2) + "\n");
  text::save_tokenizer(*prepared.tokenizer, dir);
}

proc::Command trainer_command(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
                              const std::string& token, int rank) {
  proc::Command command;
  command.role = fleet::trainer_role(rank);
  command.argv = {vime_binary, "trainer",       "--run-dir", directory.root().string(),
                  "--run-id",  prepared.run_id, "--rank",    std::to_string(rank)};
  if (!prepared.checkpoint.empty()) {
    command.argv.push_back("--checkpoint");
    command.argv.push_back(prepared.checkpoint.string());
  }
  command.env["VIME_RUN_TOKEN"] = token;
  command.log_path = (directory.logs() / (command.role + ".log")).string();
  return command;
}

std::string loopback_url(const Json& info, const std::string& role) {
  return "http://127.0.0.1:" + std::to_string(json_int(info, "port", role));
}

}  // namespace

Processes::Processes(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
                     std::function<void(const std::string&, const Json&)> on_event, const proc::AgentOptions& agent)
    : token_(random_token()), supervisor_(vime_binary, prepared.run_id, std::move(on_event), agent) {
  const spec::ExperimentSpec& spec = prepared.spec;
  write_model_folder(prepared, directory.model());
  const bool external = prepared.parts.engines && spec.engine.backend == "external";
  std::vector<weights::EngineAddress> servers;
  if (external) {  // before anything is started
    servers = vllm_addresses(prepared, {});
    wait_until_serving(prepared, supervisor_, client_, servers, directory.logs());
    meet_servers(prepared, client_, servers);
  }
  std::vector<std::string> trainer_roles, engine_roles;
  if (prepared.parts.trainers) {
    start_trainers(prepared, directory, vime_binary);
    for (const placement::TrainerRank& rank : prepared.plan.ranks)
      trainer_roles.push_back(fleet::trainer_role(rank.rank));
  }
  if (prepared.parts.engines && spec.engine.backend == "embedded") {
    start_engines(prepared, directory, vime_binary);
    for (const placement::Engine& engine : prepared.plan.engines) engine_roles.push_back(fleet::engine_role(engine.id));
  }
  std::vector<std::string> roles = trainer_roles;
  roles.insert(roles.end(), engine_roles.begin(), engine_roles.end());
  const std::map<std::string, Json> infos = supervisor_.wait_ready(roles, Deadline(spec.engine.startup_timeout));

  std::vector<std::string> urls;
  for (const std::string& role : trainer_roles) urls.push_back(loopback_url(infos.at(role), role));
  trainers_ = std::make_unique<TrainerGroup>(client_, supervisor_, urls, token_, spec.trainer.timeout);
  if (!trainer_roles.empty()) {
    trainers_->call_all("/setup",
                        {{"meeting_host", "127.0.0.1"},
                         {"meeting_port", json_int(infos.at(trainer_roles.front()), "meeting_port", "trainer-0")}});
  }
  std::vector<weights::EngineAddress> addresses;
  for (size_t i = 0; i < engine_roles.size(); ++i) {
    addresses.push_back({static_cast<int>(i), loopback_url(infos.at(engine_roles[i]), engine_roles[i]), token_, "",
                         directory.model().string()});
  }
  // After the trainer ranks have settled: on a GPU that they share, a server sizes itself by the memory that is free.
  if (prepared.parts.engines && spec.engine.backend == "vllm") addresses = start_vllm(prepared, directory);
  if (external) addresses = std::move(servers);
  fleet_ = std::make_unique<fleet::Fleet>(
      client_, supervisor_, addresses,
      fleet::FleetOptions{spec.weight_sync.timeout, spec.engine.request_timeout, spec.engine.server_concurrency,
                          prepared.config.vocab_size, external});
  if (!prepared.parts.engines) return;
  rewards_ = std::make_unique<reward::Rewards>(
      reward_options(spec, directory.logs()),
      reward::WorkerLauncher{[this](const proc::Command& command, std::function<void(const proc::Event&)> on_end) {
                               supervisor_.start(command, std::move(on_end));
                             },
                             [this](const std::string& role, milliseconds grace) { supervisor_.stop(role, grace); }});
}

void Processes::shutdown() {
  rewards_.reset();  // it tells its workers to end
  supervisor_.shutdown(milliseconds(2000));
}

void Processes::start_trainers(const Prepared& prepared, const RunDirectory& directory,
                               const std::string& vime_binary) {
  for (const placement::TrainerRank& rank : prepared.plan.ranks) {
    supervisor_.start(trainer_command(prepared, directory, vime_binary, token_, rank.rank));
  }
}

std::vector<weights::EngineAddress> Processes::start_vllm(const Prepared& prepared, const RunDirectory& directory) {
  const std::vector<uint16_t> ports = free_ports(prepared.plan.engines.size());
  for (const fleet::VllmLaunch& launch : vllm_launches(prepared, directory.model(), directory.logs(), ports)) {
    supervisor_.start(fleet::vllm_command(launch));
  }
  std::vector<weights::EngineAddress> addresses = vllm_addresses(prepared, ports);
  wait_until_serving(prepared, supervisor_, client_, addresses, directory.logs());
  meet_servers(prepared, client_, addresses);
  return addresses;
}

void Processes::start_engines(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary) {
  const spec::ExperimentSpec& spec = prepared.spec;
  for (const placement::Engine& engine : prepared.plan.engines) {
    fleet::EngineLaunch launch;
    launch.vime_binary = vime_binary;
    launch.run_id = prepared.run_id;
    launch.token = token_;
    launch.id = engine.id;
    launch.device = spec.placement.device;
    launch.dtype = spec.trainer.dtype;
    launch.gpu_memory_utilization = spec.engine.gpu_memory_utilization;
    launch.deterministic = spec.deterministic;
    for (int i = 0; i < engine.count; ++i) {
      launch.device_uuids.push_back(prepared.plan.devices[static_cast<size_t>(engine.start + i)].uuid);
    }
    const bool own_weights = !prepared.engine_weights.empty();
    launch.model_dir = own_weights ? prepared.engine_weights.string() : directory.model().string();
    launch.served_model = directory.model().string();
    launch.load_weights = own_weights;
    launch.max_model_len = prepared.max_model_len;
    launch.max_num_seqs = spec.engine.max_num_seqs;
    launch.logprobs_mode = spec.engine.logprobs_mode;
    launch.transfer_timeout_ms = spec.weight_sync.timeout.count();
    launch.log_dir = directory.logs().string();
    supervisor_.start(fleet::engine_command(launch));
  }
}

}  // namespace vime::loop
