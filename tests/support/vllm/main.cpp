// A stand-in for `vllm serve`: a strict server of vLLM's HTTP protocol over a real tiny model, so that a client's
// mistakes show where there is no vLLM. What it claims to be comes from VIME_STAND_IN_VERSION; environment.hpp has the
// other variables, faults.hpp the faults.
//
// It knows the protocol on its own and shares no code with vime's client for it. Read engine.hpp, transfer.hpp and
// routes.hpp first.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>

#include "arch/model_config.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "support/vllm/engine.hpp"
#include "support/vllm/environment.hpp"
#include "support/vllm/front.hpp"
#include "support/vllm/routes.hpp"

namespace {

using namespace vime;
using namespace vime::stand_in;

int end_with_traceback(const std::string& text) {
  std::fprintf(stderr, "Traceback (most recent call last):\n  File \"vllm\", line 1, in <module>\n%s\n", text.c_str());
  return 1;
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const ServeArguments& arguments) {
  const std::string& folder = arguments.tokenizer.empty() ? arguments.model : arguments.tokenizer;
  try {
    return text::has_tokenizer(folder) ? text::load_tokenizer(folder) : nullptr;
  } catch (const Error& error) {
    log::warning("vllm", error.what());
    return nullptr;
  }
}

// The sampling fields of generation_config.json, which completions fall back to.
Json generation_defaults(const ServeArguments& arguments) {
  const fs::path path = fs::path(arguments.model) / "generation_config.json";
  if (arguments.generation_config != "auto" || !fs::exists(path)) return Json::object();
  const Json file = parse_json(read_file(path), path.string());
  Json defaults = Json::object();
  for (const char* key : {"temperature", "top_p", "top_k", "min_p"}) {
    if (file.contains(key)) defaults[key] = file[key];
  }
  return defaults;
}

pid_t engine_process = 0;

// vLLM's engine is a process of its own. It goes with a server that is asked to end, and stays behind a killed one.
void fork_engine_process() {
  engine_process = ::fork();
  if (engine_process != 0) return;
  ::prctl(PR_SET_NAME, "VLLM::EngineCor");
  while (true) ::pause();
}

// SIGTERM and SIGINT end the server, which has nothing to bring to an end.
void end_on_signals() {
  for (const int signal : {SIGTERM, SIGINT}) {
    ::signal(signal, [](int) {
      if (engine_process > 0) ::kill(engine_process, SIGKILL);
      ::_exit(0);
    });
  }
}

int serve(const ServeArguments& arguments, const Environment& environment, const Flavour& flavour) {
  if (environment.engine_process) fork_engine_process();
  end_on_signals();
  Faults faults(environment.fault);
  Trace trace(environment.trace);
  const Front front(arguments.host, arguments.port);
  std::fprintf(stderr, "INFO [api_server.py] vLLM API server version %s\n", flavour.version.c_str());
  if (const auto fault = faults.next("startup")) {
    if (*fault == "death") throw Error(ErrorKind::refused, "planted failure in startup");
    while (true) ::pause();
  }
  const std::vector<std::string> uuids = worker_uuids(environment, arguments);
  const arch::ModelConfig config = arch::read_config(arguments.model);
  const int64_t max_model_len = arguments.max_model_len > 0 ? arguments.max_model_len : config.max_position_embeddings;
  if (max_model_len > config.max_position_embeddings) {
    throw Error(ErrorKind::refused, "User-specified max_model_len (" + std::to_string(max_model_len) +
                                        ") is greater than the derived max_model_len (max_position_embeddings=" +
                                        std::to_string(config.max_position_embeddings) + ")");
  }
  Model model(config, {arguments.dtype, arguments.max_num_seqs, max_model_len}, arguments.seed);
  if (arguments.transfer_backend == "ipc" && flavour.ipc_imports_ray && !has_module(environment.python_path, "ray"))
    throw Error(ErrorKind::refused, "ModuleNotFoundError: No module named 'ray'");
  const auto tokenizer = tokenizer_of(arguments);
  BatchOptions batch{arguments.max_num_seqs,
                     max_model_len,
                     arguments.logprobs_mode,
                     {config.eos_token_ids.begin(), config.eos_token_ids.end()},
                     arguments.prefix_caching,
                     arguments.block_size,
                     arguments.seed};
  if (batch.eos_ids.empty() && tokenizer && tokenizer->eos_id() >= 0)
    batch.eos_ids.push_back(static_cast<int32_t>(tokenizer->eos_id()));
  Engine engine(model, std::move(batch), flavour,
                {arguments.transfer_backend, uuids, environment.insecure_serialization},
                {arguments.model, arguments.load_format, arguments.workers(), arguments.sleep_mode,
                 std::chrono::milliseconds(environment.step_ms)},
                faults, trace);
  Server server{arguments, environment,   flavour,           engine,    faults,
                trace,     max_model_len, config.vocab_size, tokenizer, generation_defaults(arguments)};
  const Routes routes(server);
  front.listen();
  std::fprintf(stderr, "INFO:     Application startup complete.\nINFO:     Uvicorn running on http://%s:%d\n",
               arguments.host.c_str(), front.port());
  front.serve([&routes](const http::ServerRequest& request, const Gone& gone) { return routes.handle(request, gone); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const Environment environment = read_environment();
  const Flavour flavour = flavour_of(environment.flavour);
  if (arguments.size() == 1 && (arguments[0] == "--version" || arguments[0] == "-v")) {
    std::printf("%s\n", flavour.version.c_str());
    return 0;
  }
  try {
    return serve(parse_serve_arguments(arguments, flavour), environment, flavour);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    return end_with_traceback(error.what());
  }
}
