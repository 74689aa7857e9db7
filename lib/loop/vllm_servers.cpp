#include "loop/vllm_servers.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "fleet/launch.hpp"
#include "fleet/vllm_probe.hpp"
#include "proc/log_tail.hpp"
#include "spec/placement_request.hpp"

namespace vime::loop {
namespace {

constexpr milliseconds kHealthTimeout{5'000};
constexpr milliseconds kHealthPause{250};
constexpr milliseconds kProbeTimeout{120'000};  // /server_info looks at the whole Python installation
constexpr std::size_t kLogLines = 20;

std::string transfer_backend(const spec::ExperimentSpec& spec, const placement::Engine& engine) {
  switch (spec::route_of(spec, engine)) {
    case spec::Route::memory:
      return "ipc";
    case spec::Route::network:
      return "nccl";
    case spec::Route::disk:
      return "";
  }
  return "";
}

std::string api_key(const spec::ExperimentSpec& spec) {
  if (!spec.engine.api_key_env) return "";
  const char* const value = std::getenv(spec.engine.api_key_env->c_str());
  return value == nullptr ? "" : value;
}

// Where the server's own model can be read from here, it must compute what the trainer does. "" when it does, or when
// nobody can tell before the first push.
std::string model_problem(const arch::ModelConfig& wanted, const std::string& model_dir) {
  std::error_code ignored;
  if (model_dir.empty() || !fs::exists(fs::path(model_dir) / "config.json", ignored)) return "";
  try {
    const std::string difference = arch::first_difference(wanted, arch::read_config(model_dir));
    return difference.empty() ? "" : "its model " + model_dir + " is another: " + difference + " as the run's";
  } catch (const Error& error) {
    return error.message();
  }
}

bool gathers(const spec::ExperimentSpec& spec) {
  return spec.trainer.tensor_model_parallel_size > 1 || spec.trainer.pipeline_model_parallel_size > 1;
}

}  // namespace

std::vector<fleet::VllmLaunch> vllm_launches(const Prepared& prepared, const fs::path& model_dir,
                                             const fs::path& log_dir, const std::vector<uint16_t>& ports) {
  const spec::ExperimentSpec& spec = prepared.spec;
  std::vector<fleet::VllmLaunch> launches;
  for (const placement::Engine& engine : prepared.plan.engines) {
    fleet::VllmLaunch launch;
    launch.command = spec.engine.vllm_command;
    launch.args = spec.engine.vllm_args;
    launch.env = spec.engine.env;
    launch.id = engine.id;
    const bool own_weights = !prepared.engine_weights.empty();
    launch.model_dir = own_weights ? prepared.engine_weights.string() : model_dir.string();
    launch.load_weights = own_weights;
    launch.served_model = spec.name;
    launch.port = ports.at(static_cast<std::size_t>(engine.id));
    launch.dtype = spec.trainer.dtype;
    launch.tensor_parallel_size = engine.count;
    if (spec.placement.device == "cuda") {
      for (int i = 0; i < engine.count; ++i) {
        launch.device_uuids.push_back(prepared.plan.devices[static_cast<std::size_t>(engine.start + i)].uuid);
      }
    }
    launch.transfer_backend = prepared.parts.pushes() ? transfer_backend(spec, engine) : "";
    launch.max_model_len = prepared.max_model_len;
    launch.max_num_seqs = spec.engine.max_num_seqs;
    launch.gpu_memory_utilization = spec.engine.gpu_memory_utilization;
    launch.sleeps = spec.offload.rollout;
    launch.logprobs_mode = spec.engine.logprobs_mode;
    launch.seed = spec.seed & 0xffffffff;  // all that its generators take
    launch.api_key = api_key(spec);
    launch.log_dir = log_dir.string();
    launches.push_back(std::move(launch));
  }
  return launches;
}

std::vector<uint16_t> free_ports(std::size_t count) {
  std::vector<UniqueFd> held;  // all at once, so that no two are the same
  std::vector<uint16_t> ports;
  for (std::size_t i = 0; i < count; ++i) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (fd.get() < 0 || ::bind(fd.get(), generic, size) != 0 || ::getsockname(fd.get(), generic, &size) != 0) {
      throw Error(ErrorKind::exhausted, std::string("a free port: ") + std::strerror(errno));
    }
    ports.push_back(ntohs(address.sin_port));
    held.push_back(std::move(fd));
  }
  return ports;
}

std::vector<weights::EngineAddress> vllm_addresses(const Prepared& prepared, const std::vector<uint16_t>& ports) {
  const spec::ExperimentSpec& spec = prepared.spec;
  std::vector<weights::EngineAddress> addresses;
  for (const placement::Engine& engine : prepared.plan.engines) {
    const auto at = static_cast<std::size_t>(engine.id);
    const std::string url = spec.engine.backend == "external" ? spec.engine.urls.at(at)
                                                              : "http://127.0.0.1:" + std::to_string(ports.at(at));
    addresses.push_back({engine.id, url, api_key(spec), weights::kSomeVllm});
  }
  return addresses;
}

void wait_until_serving(const Prepared& prepared, fleet::Supervisor& supervisor, http::Client& client,
                        const std::vector<weights::EngineAddress>& addresses, const fs::path& log_dir) {
  const Deadline deadline(prepared.spec.engine.startup_timeout);
  std::map<std::string, std::future<http::Outcome>> asked;  // by role
  std::map<std::string, const weights::EngineAddress*> waiting;
  for (const weights::EngineAddress& address : addresses) waiting[fleet::engine_role(address.id)] = &address;
  auto last_asked = SteadyClock::now() - kHealthPause;
  const auto all_serve = [&] {
    for (auto& [role, reply] : asked) {
      if (!reply.valid() || reply.wait_for(milliseconds(0)) != std::future_status::ready) continue;
      const http::Outcome outcome = reply.get();
      if (outcome.answered && outcome.reply.status == 200) waiting.erase(role);
    }
    if (SteadyClock::now() - last_asked < kHealthPause) return waiting.empty();
    last_asked = SteadyClock::now();
    for (const auto& [role, address] : waiting) {
      if (asked[role].valid()) continue;
      http::Request request;
      request.method = "GET";
      request.url = address->url + "/health";
      request.what = role + ": /health";
      request.timeout = kHealthTimeout;
      asked[role] = client.send(std::move(request));
    }
    return waiting.empty();
  };
  try {
    supervisor.wait_until(all_serve, deadline, "start of the vLLM servers");
  } catch (const Error& error) {
    if (!deadline.passed() || waiting.empty()) throw;
    std::string text;
    for (const auto& [role, address] : waiting) {
      text += (text.empty() ? "" : "\n") + role + " at " + address->url + " did not serve within " +
              format_seconds(static_cast<double>(deadline.timeout().count()) / 1000);
      const std::string log = (log_dir / (role + ".log")).string();
      std::error_code ignored;
      if (!fs::exists(log, ignored)) continue;
      text += "; the end of its log:";
      for (const std::string& line : proc::log_tail(log, 0, kLogLines)) text += "\n  | " + line;
      text += "\n  the whole log: " + log;
    }
    throw Error(error.kind(), text, "raise engine.startup_timeout if it only needs longer");
  }
}

void meet_servers(const Prepared& prepared, http::Client& client, std::vector<weights::EngineAddress>& addresses) {
  const spec::ExperimentSpec& spec = prepared.spec;
  std::vector<std::string> problems;
  std::set<std::string> warnings;
  for (weights::EngineAddress& address : addresses) {
    const placement::Engine& engine = prepared.plan.engines.at(static_cast<std::size_t>(address.id));
    fleet::ServerNeeds needs;
    needs.world_size = engine.count;
    needs.dtype = spec.trainer.dtype;
    needs.max_model_len = prepared.max_model_len;
    needs.transfer_backend = prepared.parts.pushes() ? transfer_backend(spec, engine) : "";
    needs.logprobs_mode = spec.engine.logprobs_mode;
    needs.sleeps = spec.offload.rollout;
    needs.packed_ipc = needs.transfer_backend == "ipc" && gathers(spec);
    fleet::ServerFacts facts;
    try {
      facts = fleet::ask_server(client, address, kProbeTimeout);
    } catch (const Error& error) {
      problems.emplace_back(error.what());
      continue;
    }
    const std::string who = address.name() + " (vLLM " + facts.version + " at " + address.url + "): ";
    std::vector<std::string> own = fleet::server_problems(facts, needs);
    if (const std::string problem = model_problem(prepared.config, facts.model_dir); !problem.empty())
      own.push_back(problem);
    for (const std::string& problem : own) problems.push_back(who + problem);
    if (!own.empty()) continue;
    address.protocol = weights::kVllmPrefix + facts.version;
    address.model = facts.served_model;
    if (const std::string warning = fleet::server_warning(facts); !warning.empty()) warnings.insert(warning);
  }
  if (!problems.empty()) throw Error(ErrorKind::refused, join(problems, "\n"));
  for (const std::string& warning : warnings) log::warning("engines", warning);
}

}  // namespace vime::loop
