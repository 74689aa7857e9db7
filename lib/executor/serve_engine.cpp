#include "executor/serve_engine.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "arch/model_config.hpp"
#include "base/error.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "engine/server.hpp"
#include "proc/agent.hpp"
#include "proc/process.hpp"
#include "text/tokenizer.hpp"

namespace vime::executor {
namespace {

// How long answers may take to leave after a worker has failed.
constexpr int kLastAnswersMs = 1000;

engine::TextCodec codec_of(const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  engine::TextCodec codec;
  codec.encode = [tokenizer](const std::string& text, bool add_special_tokens) {
    const std::vector<int64_t> ids = tokenizer->encode(text, add_special_tokens);
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  codec.decode = [tokenizer](const std::vector<int32_t>& ids, bool skip_special_tokens) {
    return tokenizer->decode(std::vector<int64_t>(ids.begin(), ids.end()), skip_special_tokens);
  };
  return codec;
}

std::shared_ptr<const text::Tokenizer> tokenizer_of(const std::string& model_dir) {
  try {
    return text::load_tokenizer(model_dir);
  } catch (const Error& error) {
    log::warning("executor", std::string("prompts have to be token ids: ") + error.what());
    return nullptr;
  }
}

std::vector<int32_t> eos_ids_of(const arch::ModelConfig& config, const text::Tokenizer* tokenizer) {
  std::vector<int32_t> ids(config.eos_token_ids.begin(), config.eos_token_ids.end());
  if (ids.empty() && tokenizer != nullptr && tokenizer->eos_id() >= 0)
    ids.push_back(static_cast<int32_t>(tokenizer->eos_id()));
  return ids;
}

// True for an interrupt, false for a failure or when the time is over.
bool wait_for_interrupt(int failure_fd, int timeout_ms) {
  pollfd polled[2] = {{proc::interrupt_fd(), POLLIN, 0}, {failure_fd, POLLIN, 0}};
  while (::poll(polled, 2, timeout_ms) < 0 && errno == EINTR) {
  }
  return polled[0].revents != 0;
}

}  // namespace

int serve_engine(const EngineOptions& options, const WrapExecutor& wrap) {
  proc::set_title("vime engine " + options.workers.run_id);
  proc::watch_interrupts();
  const std::string& folder = options.workers.model_dir;
  const auto tokenizer = tokenizer_of(folder);
  const arch::ModelConfig config = arch::read_config(folder);
  auto workers = start_workers(options.workers);
  if (wrap) workers = wrap(std::move(workers));

  const UniqueFd failure(::eventfd(0, EFD_CLOEXEC));
  if (!failure) throw_errno(ErrorKind::exhausted, "make an event descriptor");
  engine::ServerOptions server_options;
  server_options.address = options.address;
  server_options.port = options.port;
  server_options.token = options.token;
  server_options.model_name = options.served_model_name.empty() ? folder : options.served_model_name;
  server_options.model_dir = folder;
  server_options.vocab_size = config.vocab_size;
  server_options.eos_ids = eos_ids_of(config, tokenizer.get());
  server_options.weights_loaded = options.workers.load_weights;
  server_options.seed = options.seed;
  server_options.on_failure = [fd = failure.get()](const std::string&) { ::eventfd_write(fd, 1); };
  engine::EngineServer server(std::move(server_options), *workers,
                              tokenizer ? codec_of(tokenizer) : engine::TextCodec{});
  server.start();
  log::info("executor", "serving " + folder + " on " + options.address + ":" + std::to_string(server.port()) +
                            " with " + std::to_string(workers->world_size()) + " workers, " +
                            std::to_string(workers->max_slots()) + " sequences at a time");
  proc::announce_ready({{"port", server.port()}, {"address", options.address}, {"slots", workers->max_slots()}});

  const bool interrupted = wait_for_interrupt(failure.get(), -1);
  if (!interrupted) wait_for_interrupt(-1, kLastAnswersMs);
  server.stop();
  return interrupted ? 0 : exit_status(ErrorKind::process_failed);
}

}  // namespace vime::executor
