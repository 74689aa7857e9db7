#include "executor/worker_pool.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"
#include "executor/worker.hpp"

namespace vime::executor {
namespace {

// Tokens of a step, unless it is said how many.
constexpr int64_t kCpuRows = 512;
constexpr int64_t kGpuRows = 8192;

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* const name = ::sigabbrev_np(signal);
    return "was killed by signal " + std::to_string(signal) +
           (name == nullptr ? "" : std::string(" (SIG") + name + ")");
  }
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

void limit_sending(int socket, milliseconds timeout) {
  const timeval limit{static_cast<time_t>(timeout.count() / 1000),
                      static_cast<suseconds_t>(timeout.count() % 1000 * 1000)};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Waits until the process has ended and reaps it. False when it has not by then.
bool reap(pid_t pid, int& status, const Deadline& deadline) {
  while (true) {
    const pid_t seen = ::waitpid(pid, &status, WNOHANG);
    if (seen == pid || (seen < 0 && errno == ECHILD)) return true;
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace

WorkerPool::WorkerPool(ExecutorOptions options, const arch::ModelConfig& config) : options_(std::move(options)) {
  const std::string token = random_token();
  const int count = static_cast<int>(options_.device_uuids.size());
  try {
    for (int index = 0; index < count; ++index) fork_worker(config, index, token);
    Json setup = {{"call", "setup"}};
    if (count > 1) setup["port"] = control({{"call", "meet"}}, options_.start_timeout, 1).at(0).at("port");
    slots_ = options_.max_num_seqs;
    for (const Json& ready : control(setup, options_.start_timeout, workers_.size())) {
      slots_ = std::min(slots_, ready.at("slots").get<int64_t>());
    }
  } catch (...) {
    end_all(milliseconds(0));
    throw;
  }
}

WorkerPool::~WorkerPool() {
  end_all(milliseconds(2000));
}

std::vector<pid_t> WorkerPool::pids() const {
  std::vector<pid_t> pids;
  for (const Link& link : workers_) pids.push_back(link.pid);
  return pids;
}

void WorkerPool::fork_worker(const arch::ModelConfig& config, int index, const std::string& token) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw_errno(ErrorKind::exhausted, "make a worker's socket");
  Link link;
  link.socket = UniqueFd(ends[0]);
  const UniqueFd other(ends[1]);
  const int parent = ::getpid();
  link.pid = ::fork();
  if (link.pid < 0) throw_errno(ErrorKind::exhausted, "fork engine worker " + std::to_string(index));
  if (link.pid == 0) worker_main(options_, config, index, token, other.get(), parent);
  workers_.push_back(std::move(link));
}

void WorkerPool::end_all(std::chrono::milliseconds grace) {
  for (Link& link : workers_) link.socket.reset();
  const Deadline deadline(grace);
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    Link& link = workers_[index];
    if (link.pid == 0) continue;
    int status = 0;
    if (!reap(link.pid, status, deadline)) {
      ::kill(link.pid, SIGKILL);
      if (!reap(link.pid, status, Deadline(milliseconds(10'000)))) {
        log::error("executor", "engine worker " + std::to_string(index) + " (pid " + std::to_string(link.pid) +
                                   ") cannot be killed");
      }
    }
    link.pid = 0;
  }
}

void WorkerPool::break_down(const std::string& reason) {
  broken_ = reason;
  end_all(milliseconds(0));
  throw Error(ErrorKind::process_failed, reason);
}

void WorkerPool::collect(std::vector<Outcome>& outcomes, const Deadline& deadline) {
  std::vector<FrameReader> readers(outcomes.size());
  std::size_t open = 0;
  std::vector<bool> settled;
  for (const Outcome& outcome : outcomes) {
    settled.push_back(outcome.ended || outcome.silent);
    open += settled.back() ? 0 : 1;
  }
  while (open > 0) {
    std::vector<pollfd> polled;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      polled.push_back({settled[i] ? -1 : workers_[i].socket.get(), POLLIN, 0});
    }
    const int ready = ::poll(polled.data(), polled.size(),
                             static_cast<int>(std::min<int64_t>(deadline.remaining().count(), 1 << 30)));
    if (ready < 0 && errno != EINTR) throw_errno(ErrorKind::internal, "wait for the engine's workers");
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (settled[i] || ready <= 0 || polled[i].revents == 0) continue;
      const FrameReader::Status status = readers[i].read_some(workers_[i].socket.get());
      if (status == FrameReader::Status::partial) continue;
      outcomes[i].ended = status == FrameReader::Status::closed;
      outcomes[i].frame = std::move(readers[i].frame());
      settled[i] = true;
      --open;
    }
    if (open == 0 || !deadline.passed()) continue;
    for (std::size_t i = 0; i < outcomes.size(); ++i) outcomes[i].silent = outcomes[i].silent || !settled[i];
    return;
  }
}

// A worker that has gone takes the others' collectives with it, so its end is the cause and is told first.
void WorkerPool::judge(const std::string& what, const std::vector<Outcome>& outcomes, const Deadline& deadline) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].ended) continue;
    int status = 0;
    const std::string name = "engine worker " + std::to_string(i) + " (pid " + std::to_string(workers_[i].pid) + ")";
    const bool reaped = reap(workers_[i].pid, status, Deadline(milliseconds(5000)));
    if (reaped) workers_[i].pid = 0;
    break_down(what + ": " + name + " " + (reaped ? describe_status(status) : "closed its socket"));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].silent) continue;
    break_down(what + ": engine worker " + std::to_string(i) + " (pid " + std::to_string(workers_[i].pid) +
               ") did not answer within " + format_seconds(static_cast<double>(deadline.timeout().count()) / 1000));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].frame.kind != FrameKind::failed) continue;
    const Json failure = parse_json(outcomes[i].frame.payload);
    auto kind = static_cast<ErrorKind>(failure.at("kind").get<int>());
    // The worker lives: a sender that is gone or a handle that cannot be opened is the payload's fault, not this
    // engine's end.
    if (kind == ErrorKind::process_failed) kind = ErrorKind::refused;
    throw Error(kind, "engine worker " + std::to_string(i) + ": " + failure.at("message").get<std::string>());
  }
}

std::vector<Frame> WorkerPool::call(const std::string& what, const Frame& request, std::chrono::milliseconds timeout,
                                    std::size_t workers) {
  if (!broken_.empty()) throw Error(ErrorKind::process_failed, broken_);
  const Deadline deadline(timeout);
  std::vector<Outcome> outcomes(workers);
  for (std::size_t i = 0; i < workers; ++i) {
    const int socket = workers_[i].socket.get();
    limit_sending(socket, timeout);
    errno = 0;
    if (write_frame(socket, request)) continue;
    // A worker that reads nothing any more is silent, not gone.
    (errno == EAGAIN ? outcomes[i].silent : outcomes[i].ended) = true;
  }
  collect(outcomes, deadline);
  judge(what, outcomes, deadline);
  std::vector<Frame> frames;
  for (Outcome& outcome : outcomes) frames.push_back(std::move(outcome.frame));
  return frames;
}

std::vector<Json> WorkerPool::control(const Json& request, std::chrono::milliseconds timeout, std::size_t workers) {
  const Frame frame{FrameKind::control, request.dump()};
  std::vector<Json> answers;
  for (const Frame& answer : call(request.at("call").get<std::string>(), frame, timeout, workers)) {
    answers.push_back(parse_json(answer.payload));
  }
  return answers;
}

WorkerPool::Figures WorkerPool::figures() {
  const Json found = control({{"call", "figures"}}).at(0);
  return {found.at("steps").get<int64_t>(), found.at("seconds").get<double>()};
}

std::vector<engine::Sampled> WorkerPool::step(const engine::Batch& batch) {
  const auto frames = call("step", {FrameKind::step, pack_batch(batch)}, options_.step_timeout, workers_.size());
  return unpack_sampled(frames.at(0).payload);
}

void WorkerPool::init_transfer(const Json& init_info) {
  control({{"call", "init"}, {"info", init_info}});
}
void WorkerPool::start_update() {
  control({{"call", "start"}});
}
void WorkerPool::update(const Json& update_info) {
  control({{"call", "update"}, {"info", update_info}});
}
void WorkerPool::finish_update() {
  control({{"call", "finish"}});
}
void WorkerPool::reload(const std::string& model_dir) {
  control({{"call", "reload"}, {"folder", model_dir}});
}
void WorkerPool::sleep(int level) {
  control({{"call", "sleep"}, {"level", level}});
}
void WorkerPool::wake(bool weights, bool kv_cache) {
  control({{"call", "wake"}, {"weights", weights}, {"kv_cache", kv_cache}});
}

std::map<std::string, uint64_t> WorkerPool::checksums() {
  std::map<std::string, uint64_t> sums;
  std::map<std::string, uint64_t> owned;  // "<name> [begin, end)" -> the owner's sum
  const std::vector<Json> answers = control({{"call", "checksums"}});
  for (const bool owners : {true, false}) {
    for (std::size_t worker = 0; worker < answers.size(); ++worker) {
      for (const Json& part : answers[worker].at("parts")) {
        if (part.at("owner").get<bool>() != owners) continue;
        const auto name = part.at("name").get<std::string>();
        const auto sum = part.at("sum").get<uint64_t>();
        const std::string place = name + " [" + part.at("begin").dump() + ", " + part.at("end").dump() + ")";
        if (owners) {
          sums[name] += sum;
          owned[place] = sum;
        } else if (owned.count(place) == 0 || owned[place] != sum) {
          throw Error(ErrorKind::check_failed, "engine worker " + std::to_string(worker) + " holds other contents in " +
                                                   place + " than the worker that shares it");
        }
      }
    }
  }
  return sums;
}

std::unique_ptr<engine::Executor> start_workers(const ExecutorOptions& given) {
  ExecutorOptions options = given;
  const arch::ModelConfig config = arch::read_config(options.model_dir);
  if (options.device_uuids.empty()) throw Error(ErrorKind::refused, "an engine needs at least one device");
  if (options.device != "cpu" && options.device != "cuda") {
    throw Error(ErrorKind::refused, "device \"" + options.device + "\": expected cpu or cuda");
  }
  if (options.rows_per_step == 0) options.rows_per_step = options.device == "cuda" ? kGpuRows : kCpuRows;
  if (options.max_model_len == 0) options.max_model_len = config.max_position_embeddings;
  if (options.max_model_len < 1 || options.max_model_len > config.max_position_embeddings) {
    throw Error(ErrorKind::refused, "max_model_len " + std::to_string(options.max_model_len) +
                                        ": expected 1 to the model's " +
                                        std::to_string(config.max_position_embeddings) + " positions");
  }
  for (const int64_t value : {options.max_num_seqs, options.rows_per_step, options.rows_per_block}) {
    if (value < 1) throw Error(ErrorKind::refused, "max_num_seqs, rows_per_step and rows_per_block must be at least 1");
  }
  // Told here, before anything is started: whether this model can be cut for so many workers, and the dtype's name.
  const tensor::DType dtype = tensor::parse_dtype_name(options.dtype == "auto" ? config.dtype : options.dtype);
  arch::arena_layout(config, dtype, 0, static_cast<int>(options.device_uuids.size()));
  return std::make_unique<WorkerPool>(std::move(options), config);
}

}  // namespace vime::executor
