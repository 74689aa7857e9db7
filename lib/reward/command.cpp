// The user's program as a reward: workers kept alive, each given calls over its stdin and answering on its stdout
// (answer.hpp). What may go wrong, and what is done:
// - no answer by the deadline: that call gets no number (timeout); the worker is killed and started again, and what
// else
//   it held goes back to the queue
// - it dies, or closes its stdout, over calls: each goes to another worker once, and gets no number (failed) the second
//   time
// - it writes anything that is no answer to a call it holds, or a line beyond 1 MiB: its calls get no number
// (malformed);
//   it is killed and started again, for its output is out of step
// Before the first answer of the run no call is given up for a death or for such a line: the command, not the sample,
// is at fault, and that is an error of its own:
// - it cannot be executed; or ends three times in a row without an answer before the first answer of the run, or ten
//   times later; or needs more than max_restarts: Error{process_failed}
#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"
#include "reward/answer.hpp"
#include "reward/scorer.hpp"
#include "reward/worker.hpp"

namespace vime::reward {
namespace {

using std::chrono::seconds;

constexpr milliseconds kEndGrace{1000};      // between the end of its stdout and its being killed
constexpr milliseconds kGoodbyeGrace{2000};  // for a worker whose stdin was closed at the run's end
constexpr int kFruitlessAtStart = 3;
constexpr int kFruitlessLater = 10;

struct Call {
  uint64_t id = 0;
  std::vector<ScoreItem> items;
  Scorer::Done done;
  int deaths = 0;  // workers that died over it
  int avoid = -1;  // the worker that did
  SteadyClock::time_point deadline{};
};

// Why a worker ends, as far as the driver brought it about.
enum class Fault { none, closed_stdout, no_answer, broke_protocol };

struct Worker {
  // absent -> running -> (closing: its stdout has ended | ending: it was told to die) -> absent, when its tree has gone
  enum class Phase { absent, running, closing, ending };
  int number = 0;
  std::string role;
  Phase phase = Phase::absent;
  WorkerPipes pipes;
  std::map<uint64_t, Call> calls;
  SteadyClock::time_point stop_at{};  // closing
  Fault fault = Fault::none;
  std::string fault_text;  // "closed its stdout"
  bool answered = false;   // since its start
  int starts = 0;
  int fruitless = 0;  // ends in a row without an answer
};

class CommandScorer final : public Scorer {
 public:
  CommandScorer(const RewardOptions& options, WorkerLauncher launcher)
      : options_(options),
        launcher_(std::move(launcher)),
        calls_per_worker_(static_cast<size_t>(std::max(options.concurrency, 1))),
        workers_(static_cast<size_t>(options.num_workers)) {
    VIME_CHECK(launcher_.start && launcher_.stop, "a reward command needs a launcher");
    for (size_t i = 0; i < workers_.size(); ++i) {
      workers_[i].number = static_cast<int>(i);
      workers_[i].role = options_.role + "-" + std::to_string(i);
      start(workers_[i]);
    }
  }
  ~CommandScorer() override;

  void submit(std::vector<ScoreItem> items, Done done) override {
    Call call;
    call.id = ++last_id_;
    call.items = std::move(items);
    call.done = std::move(done);
    queue_.push_back(std::move(call));
  }
  void poll() override;
  void wait(milliseconds timeout) override;
  void cancel() override;
  void count(RewardCounters& counters) const override {
    counters.retries = retries_;
    counters.worker_ends = worker_ends_;
    counters.late = late_;
  }

 private:
  void start(Worker& worker);
  void dispatch(Worker& worker);
  void receive(Worker& worker);
  void take(Worker& worker, const std::string& line);
  void refuse(Worker& worker, const std::string& fault);
  void heed_deadlines(Worker& worker);
  void end(Worker& worker, Fault fault, const std::string& text);
  void take_end(Worker& worker, const proc::Event& event);
  void settle_left(Worker& worker, const std::string& how);
  void finish(Call& call, Missing why, const std::string& problem);
  std::string shown_command() const { return "reward command \"" + join(options_.command, " ") + "\""; }

  const RewardOptions options_;
  const WorkerLauncher launcher_;
  const size_t calls_per_worker_;
  std::vector<Worker> workers_;
  std::deque<Call> queue_;
  uint64_t last_id_ = 0;
  bool ever_answered_ = false;
  int64_t retries_ = 0, worker_ends_ = 0, late_ = 0;
  std::optional<Error> fatal_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // ends reported after the destructor find it gone
};

CommandScorer::~CommandScorer() {
  alive_.reset();
  for (Worker& worker : workers_) {
    if (worker.phase == Worker::Phase::absent) continue;
    worker.pipes.close();
    try {
      launcher_.stop(worker.role, worker.phase == Worker::Phase::ending ? milliseconds(0) : kGoodbyeGrace);
    } catch (const std::exception& error) {
      log::warning("reward", "stop " + worker.role + ": " + error.what());
    }
  }
}

void CommandScorer::start(Worker& worker) {
  const WorkerPipes::ChildEnds ends = worker.pipes.open();
  proc::Command command;
  command.role = worker.role;
  command.argv = options_.command;
  command.env["PYTHONUNBUFFERED"] = "1";  // a Python program that forgets to flush would hang
  command.log_path = options_.log_folder + "/" + worker.role + ".log";
  command.cwd = options_.cwd;
  command.stdin_fd = ends.stdin_end.get();
  command.stdout_fd = ends.stdout_end.get();
  worker.phase = Worker::Phase::running;
  worker.answered = false;
  worker.fault = Fault::none;
  worker.fault_text.clear();
  ++worker.starts;
  launcher_.start(command, [this, &worker, alive = std::weak_ptr<int>(alive_)](const proc::Event& event) {
    if (!alive.expired()) take_end(worker, event);
  });
}

void CommandScorer::poll() {
  for (Worker& worker : workers_) {
    if (fatal_) throw *fatal_;
    if (worker.phase == Worker::Phase::running) {
      worker.pipes.flush();
      receive(worker);
      heed_deadlines(worker);
    }
    if (worker.phase == Worker::Phase::closing && SteadyClock::now() >= worker.stop_at)
      end(worker, Fault::closed_stdout, "closed its stdout");
    if (worker.phase == Worker::Phase::absent) start(worker);
    if (worker.phase == Worker::Phase::running) dispatch(worker);
  }
}

void CommandScorer::dispatch(Worker& worker) {
  while (worker.calls.size() < calls_per_worker_) {
    const auto next = std::find_if(queue_.begin(), queue_.end(), [&](const Call& call) {
      return workers_.size() == 1 || call.avoid != worker.number;
    });
    if (next == queue_.end()) break;
    Call call = std::move(*next);
    queue_.erase(next);
    call.deadline = SteadyClock::now() + options_.timeout;
    if (!worker.answered) call.deadline += options_.startup_timeout;
    worker.pipes.send(request_text(call.id, call.items, options_.group));
    worker.calls.emplace(call.id, std::move(call));
  }
  worker.pipes.flush();
}

void CommandScorer::receive(Worker& worker) {
  for (;;) {
    const WorkerPipes::State state = worker.pipes.receive();
    if (state == WorkerPipes::State::too_long) {
      refuse(worker, "wrote a line of more than 1 MiB: " + quote(worker.pipes.unfinished().substr(0, 100)));
      return;
    }
    bool took_line = false;
    while (worker.phase == Worker::Phase::running) {
      const std::optional<std::string> line = worker.pipes.take_line();
      if (!line) break;
      took_line = true;
      take(worker, *line);
    }
    if (worker.phase != Worker::Phase::running) return;
    if (state == WorkerPipes::State::ended) {
      worker.phase = Worker::Phase::closing;
      worker.stop_at = SteadyClock::now() + kEndGrace;
      return;
    }
    if (!took_line) return;
  }
}

void CommandScorer::take(Worker& worker, const std::string& line) {
  if (trim(line).empty()) return;
  if (line.size() > kLongestAnswer) {
    refuse(worker, "wrote a line of more than 1 MiB: " + quote(line.substr(0, 100)));
    return;
  }
  const std::optional<Json> answer = parse_answer(line);
  const std::optional<uint64_t> id = answer ? answer_id(*answer) : std::nullopt;
  const auto found = id ? worker.calls.find(*id) : worker.calls.end();
  if (found == worker.calls.end()) {
    const std::string what = !answer ? "wrote a line that is not JSON: "
                             : !id   ? "wrote a line without an \"id\": "
                                     : "answered a call that it does not hold: ";
    refuse(worker, what + quote(line));
    return;
  }
  worker.answered = ever_answered_ = true;
  worker.fruitless = 0;
  Call call = std::move(found->second);
  worker.calls.erase(found);
  call.done(read_answer(*answer, call.items.size(), options_.group, options_.reward_key));
}

void CommandScorer::refuse(Worker& worker, const std::string& fault) {
  if (ever_answered_) {
    for (auto& [id, call] : worker.calls) finish(call, Missing::malformed, "the " + shown_command() + " " + fault);
    worker.calls.clear();
  }
  end(worker, Fault::broke_protocol, fault + " (its stdout is for answers, all else goes to stderr)");
}

void CommandScorer::heed_deadlines(Worker& worker) {
  if (worker.phase != Worker::Phase::running) return;
  const auto now = SteadyClock::now();
  bool hangs = false;
  for (auto at = worker.calls.begin(); at != worker.calls.end();) {
    if (now < at->second.deadline) {
      ++at;
      continue;
    }
    const milliseconds allowed = options_.timeout + (worker.answered ? milliseconds(0) : options_.startup_timeout);
    finish(at->second, Missing::timeout,
           "the " + shown_command() + " gave no answer within " +
               format_seconds(static_cast<double>(allowed.count()) / 1000.0));
    ++late_;
    at = worker.calls.erase(at);
    hangs = true;
  }
  if (hangs) end(worker, Fault::no_answer, "gave no answer in time");
}

void CommandScorer::end(Worker& worker, Fault fault, const std::string& text) {
  worker.phase = Worker::Phase::ending;
  worker.fault = fault;
  worker.fault_text = text;
  launcher_.stop(worker.role, milliseconds(0));
}

// The worker's whole tree has gone.
void CommandScorer::take_end(Worker& worker, const proc::Event& event) {
  if (worker.phase == Worker::Phase::running) receive(worker);  // what it wrote last
  const bool could_not_start = event.kind == proc::Event::Kind::failed;
  const std::string how = could_not_start               ? "could not be started: " + event.error
                          : worker.fault != Fault::none ? worker.fault_text
                                                        : proc::describe_exit(event);
  settle_left(worker, how);
  worker.pipes.close();
  worker.phase = Worker::Phase::absent;
  ++worker_ends_;
  if (!worker.answered && worker.fault != Fault::no_answer) ++worker.fruitless;
  const int allowed = ever_answered_ ? kFruitlessLater : kFruitlessAtStart;
  log::warning("reward", worker.role + " " + how);
  std::string verdict;
  if (could_not_start) {
    verdict = how;
  } else if (worker.fruitless >= allowed) {
    verdict = how + ", and so " + std::to_string(worker.fruitless) + " times in a row without an answer";
  } else if (worker.starts > options_.max_restarts) {
    verdict = how + ", and reward.max_restarts " + std::to_string(options_.max_restarts) + " is used up";
  }
  if (verdict.empty() || fatal_) return;
  std::string text = shown_command() + " (" + worker.role + ") " + verdict;
  if (!event.log_tail.empty()) text += "; the end of its log:";
  for (const std::string& line : event.log_tail) text += "\n  | " + line;
  if (!could_not_start) text += "\n  the whole log: " + event.log_path;
  fatal_ = Error(ErrorKind::process_failed, text,
                 could_not_start ? "reward.command is the program and its arguments, one list entry each"
                                 : "run it by hand with one request on its stdin: {\"id\": 1, \"prompt\": \"\", "
                                   "\"response\": \"\", \"label\": \"\", \"metadata\": null, \"sample\": 0}");
}

// A call that the worker died over goes to another once. Calls that it held beside one that was late are innocent.
void CommandScorer::settle_left(Worker& worker, const std::string& how) {
  const bool died = worker.fault == Fault::none || worker.fault == Fault::closed_stdout;
  for (auto at = worker.calls.rbegin(); at != worker.calls.rend(); ++at) {
    Call& call = at->second;
    if (died && ever_answered_ && ++call.deaths > 1) {
      finish(call, Missing::failed, "the " + shown_command() + " died over it twice, last: " + how);
      continue;
    }
    call.avoid = died ? worker.number : -1;
    ++retries_;
    queue_.push_front(std::move(call));
  }
  worker.calls.clear();
}

void CommandScorer::finish(Call& call, Missing why, const std::string& problem) {
  const std::string name = "sample " + std::to_string(call.items.front().sample) + ": ";
  call.done(std::vector<Score>(call.items.size(), no_score(why, name + problem)));
}

void CommandScorer::wait(milliseconds timeout) {
  std::vector<pollfd> polled;
  auto until = SteadyClock::now() + timeout;
  for (const Worker& worker : workers_) {
    if (worker.phase != Worker::Phase::running) continue;
    polled.push_back({worker.pipes.read_fd(), POLLIN, 0});
    polled.push_back({worker.pipes.write_fd(), POLLOUT, 0});
    for (const auto& [id, call] : worker.calls) until = std::min(until, call.deadline);
  }
  const auto left = std::chrono::ceil<milliseconds>(until - SteadyClock::now());
  ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
}

void CommandScorer::cancel() {
  const auto open = [&](Call& call) {
    finish(call, Missing::timeout, "no answer of the " + shown_command() + " by the end of the wait for rewards");
    ++late_;
  };
  for (Call& call : queue_) open(call);
  queue_.clear();
  for (Worker& worker : workers_) {
    for (auto& [id, call] : worker.calls) open(call);
    const bool held_calls = !worker.calls.empty();
    worker.calls.clear();
    if (held_calls && worker.phase == Worker::Phase::running) end(worker, Fault::no_answer, "gave no answer in time");
  }
}

}  // namespace

std::unique_ptr<Scorer> make_command_scorer(const RewardOptions& options, WorkerLauncher launcher) {
  return std::make_unique<CommandScorer>(options, std::move(launcher));
}

}  // namespace vime::reward
