#include "loop/setup.hpp"

#include <algorithm>
#include <utility>

#include "arch/parameters.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "fleet/launch.hpp"
#include "spec/placement_request.hpp"
#include "spec/print.hpp"

namespace vime::loop {
namespace {

arch::ModelConfig model_config(const spec::ExperimentSpec& spec, const text::Tokenizer& tokenizer) {
  if (spec.model.path) return arch::read_config(*spec.model.path);
  arch::ModelConfig config = arch::preset(*spec.model.preset, tokenizer.vocab_size());
  if (tokenizer.eos_id() >= 0) config.eos_token_ids = {tokenizer.eos_id()};
  if (tokenizer.pad_id() >= 0) config.pad_token_id = tokenizer.pad_id();
  return config;
}

int64_t token_count(const text::Tokenizer& tokenizer, const data::Prompt& prompt) {
  try {
    return static_cast<int64_t>(tokenizer.encode(prompt.text).size());
  } catch (const Error& error) {
    throw error.within("prompt " + std::to_string(prompt.id));
  }
}

// Longest prompt that is left; prompts over `limit` are taken out.
int64_t longest_prompt(const text::Tokenizer& tokenizer, std::vector<data::Prompt>& prompts, int64_t limit) {
  int64_t longest = 0;
  std::erase_if(prompts, [&](const data::Prompt& prompt) {
    const int64_t count = token_count(tokenizer, prompt);
    if (count <= limit) longest = std::max(longest, count);
    return count > limit;
  });
  return longest;
}

void prepare_data(Prepared& prepared) {
  const spec::ExperimentSpec& spec = prepared.spec;
  const int64_t no_limit = prepared.config.max_position_embeddings;
  prepared.prompts = data::load_prompts(spec.data.prompt_data);
  const auto before = static_cast<int64_t>(prepared.prompts.size());
  const int64_t longest =
      longest_prompt(*prepared.tokenizer, prepared.prompts, spec.rollout.rollout_max_prompt_len.value_or(no_limit));
  prepared.prompts_too_long = before - static_cast<int64_t>(prepared.prompts.size());
  if (prepared.prompts.empty()) {
    throw Error(ErrorKind::refused, "data set " + spec.data.prompt_data + ": all " + std::to_string(before) +
                                        " prompts are longer than rollout_max_prompt_len");
  }
  int64_t needed = longest + spec.rollout.rollout_max_response_len;
  if (spec.eval.eval_interval) {
    prepared.eval_prompts = data::load_prompts(*spec.eval.prompt_data);
    prepared.eval_prompts.resize(std::min(prepared.eval_prompts.size(), static_cast<size_t>(spec.eval.num_samples)));
    needed = std::max(
        needed, longest_prompt(*prepared.tokenizer, prepared.eval_prompts, no_limit) + spec.eval.max_response_len);
  }
  prepared.max_model_len = spec.engine.max_model_len.value_or(needed);
  if (prepared.max_model_len < needed) {
    throw Error(ErrorKind::refused, "engine.max_model_len is " + std::to_string(prepared.max_model_len) +
                                        ", but the longest prompt and its response need " + std::to_string(needed));
  }
  if (needed > prepared.config.max_position_embeddings) {
    throw Error(ErrorKind::refused, "prompts and responses need " + std::to_string(needed) +
                                        " positions, the model has " +
                                        std::to_string(prepared.config.max_position_embeddings));
  }
}

// Config and tokenizer for the engines, which get their weights by the first push.
void write_model_folder(const Prepared& prepared, const fs::path& dir) {
  write_file_atomic(dir / "config.json", arch::config_json(prepared.config, "float32").dump(2) + "\n");
  text::save_tokenizer(*prepared.tokenizer, dir);
}

proc::Command trainer_command(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
                              const std::string& token, int rank) {
  proc::Command command;
  command.role = fleet::trainer_role(rank);
  command.argv = {vime_binary, "trainer",       "--run-dir", directory.root().string(),
                  "--run-id",  prepared.run_id, "--rank",    std::to_string(rank)};
  command.env["VIME_RUN_TOKEN"] = token;
  command.log_path = (directory.logs() / (command.role + ".log")).string();
  return command;
}

std::string loopback_url(const Json& info, const std::string& role) {
  return "http://127.0.0.1:" + std::to_string(json_int(info, "port", role));
}

}  // namespace

Prepared prepare(const spec::ExperimentSpec& spec, const std::string& run_id) {
  Prepared prepared;
  prepared.spec = spec;
  prepared.run_id = run_id;
  prepared.plan = placement::make_plan(spec::placement_request(spec, run_id));
  const std::string& prompt_data = spec.data.prompt_data;
  prepared.tokenizer = text::tokenizer_for(spec.model.tokenizer,
                                           data::is_builtin(prompt_data) ? data::builtin_alphabet(prompt_data) : "",
                                           spec.model.path.value_or(""));
  prepared.config = model_config(spec, *prepared.tokenizer);
  if (prepared.config.vocab_size < prepared.tokenizer->vocab_size()) {
    throw Error(ErrorKind::refused, "the tokenizer has " + std::to_string(prepared.tokenizer->vocab_size()) +
                                        " tokens, the model's vocabulary only " +
                                        std::to_string(prepared.config.vocab_size));
  }
  for (const placement::Engine& engine : prepared.plan.engines) {
    for (int worker = 0; worker < engine.count; ++worker) {
      arch::arena_layout(prepared.config, tensor::DType::f32, worker,
                         engine.count);  // refuses a model that cannot be cut so
    }
  }
  prepare_data(prepared);
  return prepared;
}

Processes::Processes(const Prepared& prepared, const RunDirectory& directory, const std::string& vime_binary,
                     std::function<void(const std::string&, const Json&)> on_event)
    : token_(random_token()), supervisor_(vime_binary, prepared.run_id, std::move(on_event)) {
  const spec::ExperimentSpec& spec = prepared.spec;
  write_model_folder(prepared, directory.model());

  std::vector<std::string> trainer_roles, engine_roles, roles;
  for (const placement::TrainerRank& rank : prepared.plan.ranks) {
    supervisor_.start(trainer_command(prepared, directory, vime_binary, token_, rank.rank));
    trainer_roles.push_back(fleet::trainer_role(rank.rank));
  }
  for (const placement::Engine& engine : prepared.plan.engines) {
    fleet::EngineLaunch launch;
    launch.vime_binary = vime_binary;
    launch.run_id = prepared.run_id;
    launch.token = token_;
    launch.id = engine.id;
    for (int i = 0; i < engine.count; ++i) {
      launch.device_uuids.push_back(prepared.plan.devices[static_cast<size_t>(engine.start + i)].uuid);
    }
    launch.model_dir = directory.model().string();
    launch.max_model_len = prepared.max_model_len;
    launch.max_num_seqs = spec.engine.max_num_seqs;
    launch.logprobs_mode = spec.engine.logprobs_mode;
    launch.transfer_timeout_ms = spec.weight_sync.timeout.count();
    launch.log_dir = directory.logs().string();
    supervisor_.start(fleet::engine_command(launch));
    engine_roles.push_back(fleet::engine_role(engine.id));
  }
  roles = trainer_roles;
  roles.insert(roles.end(), engine_roles.begin(), engine_roles.end());
  const std::map<std::string, Json> infos = supervisor_.wait_ready(roles, Deadline(spec.engine.startup_timeout));

  std::vector<std::string> urls;
  for (const std::string& role : trainer_roles) urls.push_back(loopback_url(infos.at(role), role));
  trainers_ = std::make_unique<TrainerGroup>(client_, supervisor_, urls, token_, spec.weight_sync.timeout);
  trainers_->call_all("/setup",
                      {{"meeting_host", "127.0.0.1"},
                       {"meeting_port", json_int(infos.at(trainer_roles.front()), "meeting_port", "trainer-0")}});
  std::vector<weights::EngineAddress> addresses;
  for (size_t i = 0; i < engine_roles.size(); ++i) {
    addresses.push_back({static_cast<int>(i), loopback_url(infos.at(engine_roles[i]), engine_roles[i]), token_});
  }
  fleet_ = std::make_unique<fleet::Fleet>(
      client_, supervisor_, addresses,
      fleet::FleetOptions{spec.weight_sync.timeout, spec.engine.request_timeout, directory.model().string()});
}

}  // namespace vime::loop
