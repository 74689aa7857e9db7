#include "trainer/serve.hpp"

#include <poll.h>

#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "http/server.hpp"
#include "model/threads.hpp"
#include "proc/agent.hpp"
#include "proc/process.hpp"
#include "spec/load.hpp"
#include "spec/placement_request.hpp"
#include "trainer/rank.hpp"

namespace vime::trainer {
namespace {

// Commands on their way from the HTTP thread to the one that computes.
class CommandQueue {
 public:
  void push(std::function<void()> command) {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
    changed_.notify_one();
  }
  // The next command, or nothing after a moment without one.
  std::function<void()> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(50), [&] { return !commands_.empty(); });
    if (commands_.empty()) return {};
    std::function<void()> command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> commands_;
};

RankOptions rank_options(const TrainerOptions& options) {
  const spec::ExperimentSpec spec = spec::load_resolved(fs::path(options.run_dir) / "spec.yaml");
  RankOptions rank;
  rank.run_id = options.run_id;
  rank.token = options.token;
  rank.rank = options.rank;
  rank.plan = placement::make_plan(spec::placement_request(spec, options.run_id));
  for (const placement::Engine& engine : rank.plan.engines) {
    rank.routes.push_back(spec::route_of(spec, engine));
  }
  rank.vllm_engines = spec.engine.backend != "embedded";
  rank.device = spec.placement.device;
  rank.dtype = tensor::parse_dtype_name(spec.trainer.dtype);
  rank.recompute = arch::parse_recompute(spec.trainer.recompute_granularity);
  if (spec.deterministic && spec.placement.device == "cuda") rank.rows_per_product = model::kRowsPerProduct;
  rank.config = arch::read_config(fs::path(options.run_dir) / "model");
  rank.model_dir = spec.model.path.value_or("");
  rank.checkpoint_dir = options.checkpoint;
  rank.with_reference = spec.algorithm.kl_loss_coef != 0.0;
  rank.reference_dir = spec.model.ref_load.value_or("");
  rank.seed = static_cast<uint64_t>(spec.seed);
  const algo::LrSchedule schedule{algo::parse_lr_decay_style(spec.trainer.lr_decay_style), spec.trainer.lr,
                                  spec.trainer.min_lr, spec.trainer.lr_warmup_iters, spec.trainer.lr_decay_iters};
  rank.optimizer = {parse_optimizer_type(spec.trainer.optimizer),
                    schedule,
                    spec.trainer.adam_beta1,
                    spec.trainer.adam_beta2,
                    spec.trainer.adam_eps,
                    spec.trainer.weight_decay,
                    spec.trainer.clip_grad};
  const bool supervised = spec.algorithm.loss_type == "sft";
  rank.policy.loss.type =
      supervised ? algo::PolicyLossType::sft : algo::policy_loss_type(spec.algorithm.advantage_estimator);
  rank.policy.loss.kl_type = algo::parse_kl_type(spec.algorithm.kl_loss_type);
  rank.policy.loss.kl_loss_coef = spec.algorithm.kl_loss_coef;
  rank.policy.loss.eps_clip = spec.algorithm.eps_clip;
  rank.policy.loss.eps_clip_high = spec.algorithm.eps_clip_high;
  rank.policy.loss.eps_clip_c = spec.algorithm.eps_clip_c;
  rank.policy.loss.reducer =
      spec.algorithm.calculate_per_token_loss ? algo::Reducer::token_mean : algo::Reducer::sample_mean;
  rank.policy.temperature = supervised ? 1.0 : spec.rollout.rollout_temperature;
  rank.policy.entropy_coef = spec.algorithm.entropy_coef;
  rank.max_tokens_per_gpu = spec.trainer.max_tokens_per_gpu;
  rank.global_batch_size = spec.trainer.global_batch_size;
  rank.buffer_bytes = spec.weight_sync.update_weight_buffer_size.count;
  rank.transfer_timeout = spec.weight_sync.timeout;
  rank.meeting_timeout = spec.trainer.timeout;
  return rank;
}

// JSON has no NaN; null stands for one, and the driver turns it back.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json figures_json(const StepFigures& figures) {
  const algo::LossTerms& terms = figures.policy.terms;
  return {{"sums",
           {{"train/loss", number(terms.loss)},
            {"train/pg_loss", number(terms.pg_loss)},
            {"train/kl_loss", number(terms.kl_loss)},
            {"train/pg_clipfrac", number(terms.pg_clipfrac)},
            {"train/ppo_kl", number(terms.ppo_kl)},
            {"train/ppo_kl_abs", number(terms.ppo_kl_abs)},
            {"train/train_rollout_logprob_abs_diff", number(terms.train_rollout_logprob_abs_diff)},
            {"train/entropy_loss", number(figures.policy.entropy)},
            {"rollout/log_probs", number(figures.policy.logprob)},
            {"train/tokens", figures.tokens}}},
          {"same",
           {{"train/grad_norm", number(figures.grad_norm)},
            {"train/lr", figures.lr},
            {"train/step_applied", figures.applied ? 1 : 0}}}};
}

Json handle_setup(TrainerRank& rank, const Json& body) {
  rank.setup(json_string(body, "meeting_host", "/setup"),
             static_cast<uint16_t>(json_int(body, "meeting_port", "/setup")));
  return Json::object();
}

Json memory_json(TrainerRank& rank) {
  const TrainerRank::MemoryFigures memory = rank.memory();
  return {{"arena_bytes", memory.arena_bytes}, {"used_bytes", memory.used_bytes}, {"peak_bytes", memory.peak_bytes}};
}

Json handle_train(TrainerRank& rank, const Json& body) {
  const Json& asked = json_member(body, "probe", "/train");
  std::optional<rollout::StepProbe> probe;
  if (!asked.is_null()) probe = rollout::parse_step_probe(asked, "/train: \"probe\"");
  const auto [steps, answer] = rank.train(json_string(body, "batch", "/train"), probe ? &*probe : nullptr);
  Json reply = {{"steps", Json::array()}};
  for (const StepFigures& figures : steps) reply["steps"].push_back(figures_json(figures));
  reply["memory"] = memory_json(rank);
  if (probe) reply["answer"] = rollout::to_json(answer);
  return reply;
}

Json handle_push(TrainerRank& rank, const Json& body) {
  std::vector<PushTarget> targets;
  for (const Json& engine : json_member(body, "engines", "/push")) {
    targets.push_back({{static_cast<int>(json_int(engine, "id", "/push")), json_string(engine, "url", "/push"),
                        json_string(engine, "token", "/push"), json_string(engine, "protocol", "/push")},
                       json_bool(engine, "init", "/push")});
  }
  const PushFigures figures = rank.push(json_int(body, "version", "/push"), targets);
  Json results = Json::array();
  for (const weights::EngineResult& result : figures.results) {
    results.push_back({{"engine", result.engine},
                       {"error", result.error},
                       {"start_s", result.start_s},
                       {"update_s", result.update_s},
                       {"finish_s", result.finish_s}});
  }
  Json reply = {{"results", results}, {"prepare_s", figures.prepare_s}, {"extra_bytes", figures.extra_bytes}};
  if (json_bool(body, "checksums", "/push")) {
    reply["replica"] = rank.replica();
    reply["parts"] = Json::array();
    for (const PartSum& part : rank.checksums()) {
      reply["parts"].push_back({{"name", part.name}, {"copy", part.copy}, {"sum", hex(part.sum)}});
    }
  }
  return reply;
}

Json handle_offload(TrainerRank& rank, const Json&) {
  rank.offload();
  return memory_json(rank);
}

Json handle_onload(TrainerRank& rank, const Json&) {
  rank.onload();
  return memory_json(rank);
}

Json handle_prepare_push(TrainerRank& rank, const Json&) {
  return {{"seconds", rank.prepare_push()}};
}

Json handle_checkpoint_bytes(TrainerRank& rank, const Json&) {
  return {{"bytes", rank.checkpoint_bytes()}};
}

Json handle_logprobs(TrainerRank& rank, const Json& body) {
  Json values = Json::array();
  for (const double value : rank.logprobs(json_string(body, "batch", "/logprobs"))) values.push_back(number(value));
  return {{"logprobs", values}};
}

Json handle_write_model(TrainerRank& rank, const Json& body) {
  rank.write_model(json_string(body, "folder", "/write_model"));
  return Json::object();
}

Json handle_save(TrainerRank& rank, const Json& body) {
  rank.save(json_string(body, "dir", "/save"));
  return Json::object();
}

// What a failed command is answered with. bystander: it failed because another rank did.
http::Response failure_response(const Error& error, bool bystander) {
  const Json body = {{"error",
                      {{"message", error.message()},
                       {"hint", error.hint()},
                       {"kind", kind_name(error.kind())},
                       {"bystander", bystander}}}};
  return {500, body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

// Commands are collective: after one that failed here the ranks are out of step, so this rank leaves its groups and
// takes no more.
class Commands {
 public:
  explicit Commands(TrainerRank& rank) : rank_(rank) {}

  void run(const std::string& path, const std::function<Json()>& command, const http::Responder& responder) {
    const bool failed_before = !failure_.empty();
    try {
      if (failed_before) throw Error(ErrorKind::process_failed, "this rank failed before: " + failure_);
      responder.respond({200, command().dump()});
    } catch (const Error& error) {
      fail(path, error, failed_before, responder);
    } catch (const std::bad_alloc&) {
      fail(path, Error(ErrorKind::exhausted, "there is no memory left"), failed_before, responder);
    } catch (const c10::OutOfMemoryError& error) {
      fail(path,
           Error(ErrorKind::exhausted, error.what_without_backtrace(),
                 "lower trainer.max_tokens_per_gpu, or set trainer.recompute_granularity to full"),
           failed_before, responder);
    } catch (const std::exception& error) {  // LibTorch's own
      fail(path, Error(ErrorKind::process_failed, error.what()), failed_before, responder);
    }
  }

 private:
  void fail(const std::string& path, const Error& error, bool failed_before, const http::Responder& responder) {
    log::error("trainer", path + ": " + error.what());
    responder.respond(failure_response(error, failed_before || rank_.left_by_others()));
    failure_ = path + ": " + error.message();
    rank_.leave(failure_);
  }

  TrainerRank& rank_;
  std::string failure_;
};

void add_command(http::Server& server, CommandQueue& queue, Commands& commands, TrainerRank& rank,
                 const std::string& path, Json (*handle)(TrainerRank&, const Json&)) {
  server.route("POST", path,
               [&queue, &commands, &rank, path, handle](const http::ServerRequest& request, http::Responder responder) {
                 const Json body = parse_json(request.body, "body of " + path, ErrorKind::refused);
                 queue.push([&commands, &rank, path, handle, body, responder] {
                   commands.run(
                       path, [&] { return handle(rank, body); }, responder);
                 });
               });
}

}  // namespace

TrainerOptions trainer_options(const Json& json) {
  const std::string what = "trainer options";
  return {json_string(json, "run_dir", what), json_string(json, "run_id", what), json_string(json, "token", what),
          static_cast<int>(json_int(json, "rank", what)), json_string(json, "checkpoint", what)};
}

int serve_trainer(const TrainerOptions& options, const MakeRank& make_rank) {
  proc::set_title("vime trainer " + std::to_string(options.rank) + " " + options.run_id);
  proc::watch_interrupts();
  // One thread per virtual device: the devices share the machine's cores, and results do not depend on how many there
  // are.
  model::limit_threads(1);
  const std::unique_ptr<TrainerRank> made =
      make_rank ? make_rank(rank_options(options)) : std::make_unique<TrainerRank>(rank_options(options));
  TrainerRank& rank = *made;
  CommandQueue queue;
  Commands commands(rank);
  http::ServerOptions server_options;
  server_options.token = options.token;
  http::Server server(server_options);
  server.route("GET", "/health", [](const http::ServerRequest&, http::Responder responder) {
    responder.respond({200, ""});
  });
  add_command(server, queue, commands, rank, "/setup", handle_setup);
  add_command(server, queue, commands, rank, "/train", handle_train);
  add_command(server, queue, commands, rank, "/prepare_push", handle_prepare_push);
  add_command(server, queue, commands, rank, "/push", handle_push);
  add_command(server, queue, commands, rank, "/offload", handle_offload);
  add_command(server, queue, commands, rank, "/onload", handle_onload);
  add_command(server, queue, commands, rank, "/save", handle_save);
  add_command(server, queue, commands, rank, "/write_model", handle_write_model);
  add_command(server, queue, commands, rank, "/logprobs", handle_logprobs);
  add_command(server, queue, commands, rank, "/checkpoint_bytes", handle_checkpoint_bytes);
  server.start();
  proc::announce_ready({{"port", server.port()}, {"meeting_port", rank.meeting_port()}});
  while (!proc::interrupted()) {
    if (const std::function<void()> command = queue.pop()) command();
  }
  server.stop();
  return 0;
}

}  // namespace vime::trainer
