#include "gpu/communicator.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/hex.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "gpu/check.hpp"

namespace vime::gpu {
namespace {

constexpr milliseconds kWatchPeriod{20};
constexpr std::chrono::microseconds kPollPeriod{20};
constexpr milliseconds kAskPeriod{5};
constexpr std::chrono::microseconds kSpinTime{200};  // of a call that is about to return anyway

// NVLink multicast is set up in the fabric, outside of what ends with a process: one that dies in the middle of it can
// leave the host's GPUs unusable for all. What it would gain is small beside a push. A value that the user has set
// stays.
void without_multicast() {
  static const int done = ::setenv("NCCL_NVLS_ENABLE", "0", 0);
  static_cast<void>(done);
}

ncclDataType_t nccl_type(Scalar element) {
  switch (element) {
    case Scalar::u8:
      return ncclUint8;
    case Scalar::i64:
      return ncclInt64;
    case Scalar::f16:
      return ncclFloat16;
    case Scalar::bf16:
      return ncclBfloat16;
    case Scalar::f32:
      return ncclFloat32;
    case Scalar::f64:
      return ncclFloat64;
  }
  throw Error(ErrorKind::internal, "an element type without an NCCL name");
}

ncclRedOp_t nccl_operation(Reduction reduction) {
  return reduction == Reduction::sum ? ncclSum : ncclMax;
}

std::string seconds_text(milliseconds timeout) {
  return format_seconds(static_cast<double>(timeout.count()) / 1000);
}

ncclUniqueId parse_id(const std::string& text) {
  ncclUniqueId id{};
  if (!parse_hex(text, id.internal, sizeof id.internal)) {
    throw Error(ErrorKind::refused, "\"" + text.substr(0, 40) + "\" is no id of an NCCL communicator");
  }
  return id;
}

// Between two looks at what is waited for.
void pause(SteadyClock::time_point waiting_since) {
  if (SteadyClock::now() - waiting_since > kSpinTime) std::this_thread::sleep_for(kPollPeriod);
}

// Another thread's capture of a CUDA graph must not forbid this one's questions to the GPU.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  VIME_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

uint64_t bytes_of(Scalar element) {
  switch (element) {
    case Scalar::u8:
      return 1;
    case Scalar::f16:
    case Scalar::bf16:
      return 2;
    case Scalar::f32:
      return 4;
    case Scalar::i64:
    case Scalar::f64:
      return 8;
  }
  throw Error(ErrorKind::internal, "an element type without a size");
}

struct Communicator::State {
  // An operation that the GPU has been given and may not have done yet.
  struct Pending {
    std::string operation;
    cudaEvent_t done = nullptr;
    Deadline deadline;
  };

  CommunicatorOptions options;
  int device = 0;
  std::atomic<bool> leaving{false};
  SteadyClock::time_point asked{};  // when given_up was, by the thread that calls
  mutable std::mutex mutex;         // guards what follows
  ncclComm_t comm = nullptr;
  std::string broken;
  std::deque<Pending> pending;
  std::vector<cudaEvent_t> spare_events;
  std::condition_variable stopped;
  bool stopping = false;
  std::thread watcher;

  std::string where(const std::string& operation) const {
    return "NCCL group " + options.group + ", rank " + std::to_string(options.rank) + " of " +
           std::to_string(options.size) + " on GPU " + std::to_string(device) + ": " + operation;
  }

  void abort(const std::string& reason) {
    broken = reason;
    // Kernels of this group that wait for a peer end by this. Nothing can be done about its own failure.
    if (comm != nullptr) ncclCommAbort(std::exchange(comm, nullptr));
  }
  [[noreturn]] void fail(const std::string& reason) {
    abort(reason);
    throw Error(ErrorKind::process_failed, reason);
  }
  void check(ncclResult_t result, const std::string& operation, const char* call) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    const char* const last = comm == nullptr ? nullptr : ncclGetLastError(comm);
    fail(where(operation) + ": " + call + ": " + ncclGetErrorString(result) +
         (last == nullptr || *last == '\0' ? "" : std::string(" (") + last + ")"));
  }
  // A communicator that does not block says later what became of a call.
  void settle(const std::string& operation, const char* call, const Deadline& deadline) {
    const auto start = SteadyClock::now();
    for (;;) {
      ncclResult_t state = ncclInProgress;
      const ncclResult_t answered = ncclCommGetAsyncError(comm, &state);
      check(answered, operation, "ncclCommGetAsyncError");
      check(state, operation, call);
      if (state == ncclSuccess) return;
      if (leaving) fail(where(operation) + ": this rank leaves the group");
      if (deadline.passed()) {
        fail(where(operation) + ": another rank did not come within " + seconds_text(deadline.timeout()));
      }
      if (const std::string why = reason_to_give_up(); !why.empty()) give_up(operation, why);
      pause(start);
    }
  }
  // Why to go on waiting is of no use; "" as a rule. Only the thread that waits asks.
  std::string reason_to_give_up() {
    const auto now = SteadyClock::now();
    if (!options.given_up || now - asked < kAskPeriod) return "";
    asked = now;
    return options.given_up();
  }
  [[noreturn]] void give_up(const std::string& operation, const std::string& why) {
    fail(where(operation) + ": given up: " + why);
  }
  void require_whole() const {
    if (!broken.empty()) throw Error(ErrorKind::process_failed, broken);
  }

  void join(const std::string& unique_id);
  void remember(const std::string& operation, Stream stream, const Deadline& deadline);
  void forget_done();
  void look_after();
  void watch_until_stopped();
  template <typename Enqueue>
  void run(const std::string& operation, const char* call, Stream stream, const Enqueue& enqueue);
};

void Communicator::State::join(const std::string& unique_id) {
  const ncclUniqueId id = parse_id(unique_id);
  VIME_CUDA(cudaGetDevice(&device));
  without_multicast();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const Deadline deadline(options.timeout);
  check(ncclCommInitRankConfig(&comm, options.size, id, options.rank, &config), "join", "ncclCommInitRankConfig");
  settle("join", "ncclCommInitRankConfig", deadline);
}

void Communicator::State::remember(const std::string& operation, Stream stream, const Deadline& deadline) {
  if (is_capturing(stream)) return;  // nothing is given to the GPU yet
  if (spare_events.empty()) {
    cudaEvent_t event = nullptr;
    VIME_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    spare_events.push_back(event);
  }
  VIME_CUDA(cudaEventRecord(spare_events.back(), stream));
  pending.push_back({operation, spare_events.back(), deadline});
  spare_events.pop_back();
}

void Communicator::State::forget_done() {
  while (!pending.empty()) {
    const cudaError_t result = cudaEventQuery(pending.front().done);
    if (result == cudaErrorNotReady) return;
    if (result != cudaSuccess) {
      return abort(where(pending.front().operation) + ": cudaEventQuery: " + cudaGetErrorString(result));
    }
    spare_events.push_back(pending.front().done);
    pending.pop_front();
  }
}

void Communicator::State::look_after() {
  if (comm == nullptr) return;
  forget_done();
  if (comm == nullptr) return;
  ncclResult_t state = ncclSuccess;
  ncclCommGetAsyncError(comm, &state);
  if (state != ncclSuccess && state != ncclInProgress) {
    abort(where("under way: ") + ncclGetErrorString(state));
  } else if (!pending.empty() && pending.front().deadline.passed()) {
    abort(where(pending.front().operation) + ": not done within " + seconds_text(pending.front().deadline.timeout()) +
          "; another rank has gone, hangs, or does something else");
  }
  if (comm == nullptr) log::error("gpu", broken);
}

void Communicator::State::watch_until_stopped() {
  cudaSetDevice(device);
  const RelaxedCapture relaxed;
  std::unique_lock lock(mutex);
  while (!stopped.wait_for(lock, kWatchPeriod, [&] { return stopping; })) look_after();
}

template <typename Enqueue>
void Communicator::State::run(const std::string& operation, const char* call, Stream stream, const Enqueue& enqueue) {
  const std::lock_guard lock(mutex);
  require_whole();
  const Deadline deadline(options.timeout);
  check(ncclGroupStart(), operation, "ncclGroupStart");
  ncclResult_t refused = ncclSuccess;
  enqueue([&](ncclResult_t result) {
    if (refused == ncclSuccess && result != ncclInProgress) refused = result;
  });
  const ncclResult_t ended = ncclGroupEnd();
  check(refused, operation, call);
  check(ended, operation, call);
  settle(operation, call, deadline);
  remember(operation, stream, deadline);
}

std::string Communicator::unique_id() {
  without_multicast();
  ncclUniqueId id{};
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) {
    throw Error(ErrorKind::process_failed, std::string("ncclGetUniqueId(&id): ") + ncclGetErrorString(result));
  }
  return hex_of(id.internal, sizeof id.internal);
}

Communicator::Communicator(CommunicatorOptions options, const std::string& unique_id)
    : state_(std::make_unique<State>()) {
  VIME_CHECK(options.size > 0 && options.rank >= 0 && options.rank < options.size,
             options.group + ": rank " + std::to_string(options.rank) + " of " + std::to_string(options.size));
  state_->options = std::move(options);
  state_->join(unique_id);
  state_->watcher = std::thread([state = state_.get()] { state->watch_until_stopped(); });
}

// Ended by ncclCommAbort, whose work is local: ncclCommDestroy waits, without a deadline, until the other ranks end
// theirs. What this rank has been asked for is done before that.
Communicator::~Communicator() {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    state.stopping = true;
  }
  state.stopped.notify_all();
  state.watcher.join();
  const std::lock_guard lock(state.mutex);
  while (state.comm != nullptr && !state.pending.empty()) {
    state.look_after();
    std::this_thread::sleep_for(kPollPeriod);
  }
  if (state.comm != nullptr) state.abort("the group has ended");
  for (const State::Pending& left : state.pending) VIME_CUDA_WARN(cudaEventDestroy(left.done));
  for (const cudaEvent_t event : state.spare_events) VIME_CUDA_WARN(cudaEventDestroy(event));
}

int Communicator::rank() const {
  return state_->options.rank;
}
int Communicator::size() const {
  return state_->options.size;
}
const std::string& Communicator::group() const {
  return state_->options.group;
}

void Communicator::broadcast(void* data, uint64_t bytes, int root, Stream stream) {
  state_->run("broadcast of " + format_bytes(bytes), "ncclBroadcast", stream,
              [&](const auto& take) { take(ncclBroadcast(data, data, bytes, ncclUint8, root, state_->comm, stream)); });
}

void Communicator::all_gather(const void* mine, void* all, uint64_t bytes, Stream stream) {
  state_->run("all-gather of " + format_bytes(bytes), "ncclAllGather", stream,
              [&](const auto& take) { take(ncclAllGather(mine, all, bytes, ncclUint8, state_->comm, stream)); });
}

void Communicator::all_reduce(const void* from, void* to, uint64_t count, Scalar element, Reduction reduction,
                              Stream stream) {
  const std::string operation = "all-reduce of " + format_bytes(count * bytes_of(element));
  state_->run(operation, "ncclAllReduce", stream, [&](const auto& take) {
    take(ncclAllReduce(from, to, count, nccl_type(element), nccl_operation(reduction), state_->comm, stream));
  });
}

void Communicator::reduce_scatter(const void* from, void* to, uint64_t count, Scalar element, Reduction reduction,
                                  Stream stream) {
  const std::string operation = "reduce-scatter to parts of " + format_bytes(count * bytes_of(element));
  state_->run(operation, "ncclReduceScatter", stream, [&](const auto& take) {
    take(ncclReduceScatter(from, to, count, nccl_type(element), nccl_operation(reduction), state_->comm, stream));
  });
}

void Communicator::exchange(const std::vector<Send>& sends, const std::vector<Receive>& receives, Stream stream) {
  std::string operation = "exchange:";
  for (const Send& send : sends) operation += " " + format_bytes(send.bytes) + " to rank " + std::to_string(send.to);
  for (const Receive& receive : receives) {
    operation += " " + format_bytes(receive.bytes) + " from rank " + std::to_string(receive.from);
  }
  state_->run(operation, "ncclSend and ncclRecv", stream, [&](const auto& take) {
    for (const Send& send : sends) take(ncclSend(send.data, send.bytes, ncclUint8, send.to, state_->comm, stream));
    for (const Receive& receive : receives) {
      take(ncclRecv(receive.data, receive.bytes, ncclUint8, receive.from, state_->comm, stream));
    }
  });
}

void Communicator::wait(Stream stream) {
  wait_until([stream] {
    const cudaError_t result = cudaStreamQuery(stream);
    if (result == cudaErrorNotReady) return false;
    gpu::check(result, "cudaStreamQuery(stream)");
    return true;
  });
}

void Communicator::wait(const Event& event) {
  wait_until([&event] { return event.done(); });
}

void Communicator::wait_until(const std::function<bool()>& done) {
  const auto start = SteadyClock::now();
  const Deadline deadline(state_->options.timeout);
  for (;;) {
    // In this order: what is over when somebody has ended is no reason to give up, and may be why he has.
    const std::string why = state_->reason_to_give_up();
    const bool over = done();
    {
      const std::lock_guard lock(state_->mutex);
      state_->require_whole();
      if (over) return;
      if (!why.empty()) state_->give_up("wait", why);
      if (deadline.passed()) {
        state_->fail(state_->where("wait") + ": the GPU was not done within " + seconds_text(deadline.timeout()));
      }
    }
    pause(start);
  }
}

void Communicator::leave(const std::string& reason) {
  state_->leaving = true;
  const std::lock_guard lock(state_->mutex);
  if (state_->broken.empty()) state_->abort(state_->where("left: ") + reason);
}

bool Communicator::broken() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->broken.empty();
}

}  // namespace vime::gpu
