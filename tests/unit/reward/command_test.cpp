#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "bench.hpp"
#include "proc/process_table.hpp"

using namespace vime;
using namespace vime::reward;

namespace {

using std::chrono::seconds;

const std::string kChild = std::string(VIME_BIN_DIR) + "/reward_test_child";

size_t open_descriptors() {
  size_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

bool is_alive(pid_t pid) {
  const auto entry = proc::read_process(pid);
  return entry && entry->living;
}

bool eventually(const std::function<bool()>& holds) {
  const Deadline deadline(seconds(5));
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

std::vector<ScoreItem> items(const std::vector<std::string>& responses) {
  std::vector<ScoreItem> list;
  for (const std::string& response : responses) {
    ScoreItem item;
    item.response = response;
    item.sample = static_cast<int64_t>(list.size());
    list.push_back(std::move(item));
  }
  return list;
}

// A command under test, its agent, and what it gave.
struct Run {
  explicit Run(const std::vector<std::string>& arguments = {"command"},
               const std::function<void(RewardOptions&)>& change = {})
      : bench(VIME_BIN_DIR, "r" + random_token()) {
    std::vector<std::string> command{kChild};
    command.insert(command.end(), arguments.begin(), arguments.end());
    options = bench.options(command);
    if (change) change(options);
    rewards.emplace(options, bench.launcher());
  }
  // One after the other when `apart`: each sample a group of its own.
  std::vector<Score> score(const std::vector<std::string>& responses) {
    std::vector<Score> result;
    rewards->submit(items(responses), [&](std::vector<Score> scores) { result = std::move(scores); });
    CHECK(result.empty());  // never from within submit
    rewards->finish(Deadline(seconds(60)), [&] { bench.check(); });
    REQUIRE(result.size() == responses.size());
    return result;
  }
  std::string failure_of(const std::vector<std::string>& responses) {
    try {
      score(responses);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::process_failed);
      return e.what();
    }
    FAIL("nothing was thrown");
    return "";
  }

  test::Bench bench;
  RewardOptions options;
  std::optional<Rewards> rewards;
};

}  // namespace

TEST_CASE("a command scores samples in order, and its workers are kept alive") {
  Run run;
  const auto scores = run.score({"give 0.5", "give -1", "give 1e3"});
  CHECK(scores[0].value == 0.5);
  CHECK(scores[1].value == -1.0);
  CHECK(scores[2].value == 1000.0);
  std::vector<double> pids;
  for (int i = 0; i < 5; ++i) {
    for (const Score& score : run.score({"pid", "pid"})) pids.push_back(score.value.value());
  }
  std::sort(pids.begin(), pids.end());
  CHECK(std::unique(pids.begin(), pids.end()) - pids.begin() <= 2);
  CHECK(run.rewards->counters().tally.scored == 13);
  CHECK(run.rewards->counters().worker_ends == 0);
  CHECK(run.rewards->pending() == 0);
}

TEST_CASE("answers may come in any order when a worker holds several calls") {
  Run run({"reversed"}, [](RewardOptions& o) { o.num_workers = 1, o.concurrency = 3; });
  const auto scores = run.score({"give 1", "give 2", "give 3"});
  for (int i = 0; i < 3; ++i) CHECK(scores[static_cast<size_t>(i)].value == i + 1.0);
}

TEST_CASE("a group goes out in one call") {
  Run run({"command"}, [](RewardOptions& o) { o.group = true; });
  const auto scores = run.score({"a", "bbb", ""});
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].value == 3.0);
  CHECK(scores[2].value == 0.0);
}

TEST_CASE("a sample's own type may be a built-in beside the command") {
  Run run;
  std::vector<ScoreItem> list = items({"give 0.25", "#### 7"});
  list[1].type = "numeric";
  list[1].label = "7";
  std::vector<Score> result;
  run.rewards->submit(list, [&](std::vector<Score> scores) { result = std::move(scores); });
  run.rewards->finish(Deadline(seconds(30)), [&] { run.bench.check(); });
  CHECK(result.at(0).value == 0.25);
  CHECK(result.at(1).value == 1.0);
  list[1].type = "http";
  CHECK_THROWS_AS(run.rewards->submit(list, [](std::vector<Score>) {}), Error);
}

TEST_CASE("one slow reward holds no other back") {
  Run run;
  bool slow_done = false;
  int fast_done = 0;
  run.rewards->submit(items({"hang"}), [&](std::vector<Score>) { slow_done = true; });
  for (int i = 0; i < 20; ++i) {
    run.rewards->submit(items({"give 1", "give 1"}), [&](std::vector<Score> scores) {
      CHECK(scores[0].value == 1.0);
      ++fast_done;
    });
  }
  const Deadline deadline(seconds(15));
  while (fast_done < 20 && !deadline.passed()) {
    run.bench.check();
    run.rewards->poll();
  }
  CHECK(fast_done == 20);
  CHECK_FALSE(slow_done);
  CHECK(run.rewards->pending() == 1);
}

TEST_CASE("what is open at the end of the wait gets no number, and the next wait finds a fresh worker") {
  Run run;
  std::vector<Score> result;
  run.rewards->submit(items({"hang", "give 1"}), [&](std::vector<Score> scores) { result = std::move(scores); });
  run.rewards->finish(Deadline(milliseconds(700)), [&] { run.bench.check(); });
  REQUIRE(result.size() == 2);
  CHECK(result[0].why == Missing::timeout);
  CHECK(result[1].value == 1.0);
  for (const Score& score : run.score({"give 1", "give 1", "give 1"})) CHECK(score.value == 1.0);
}

TEST_CASE("a hung call gets no number at its deadline and its worker is started again") {
  Run run({"command"}, [](RewardOptions& o) {
    o.num_workers = 1;
    o.timeout = milliseconds(300);
  });
  CHECK(run.score({"give 1"})[0].value == 1.0);
  const auto scores = run.score({"give 1", "hang", "give 0.5"});
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].why == Missing::timeout);
  CHECK(scores[1].problem.find("sample 1: ") == 0);
  CHECK(scores[1].problem.find("no answer within 300 ms") != std::string::npos);
  CHECK(scores[2].value == 0.5);
  CHECK(run.rewards->counters().late == 1);
  CHECK(run.rewards->counters().worker_ends == 1);
}

TEST_CASE("a call whose worker is killed is made again on another") {
  Run run;
  const auto scores = run.score({"die-once " + (run.bench.folder().path() / "mark").string(), "give 0.5"});
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].value == 0.5);
  CHECK(run.rewards->counters().retries == 1);
  CHECK(run.rewards->counters().worker_ends == 1);
}

TEST_CASE("a call that two workers died over gets no number, and the run goes on") {
  Run run;
  CHECK(run.score({"give 1"})[0].value == 1.0);
  const auto scores = run.score({"give 1", "die 7", "give 0.5"});
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].why == Missing::failed);
  CHECK(scores[1].problem.find("exited with status 7") != std::string::npos);
  CHECK(scores[2].value == 0.5);
}

TEST_CASE("an answer written just before the end counts") {
  Run run;
  for (int i = 0; i < 3; ++i) CHECK(run.score({"answer-and-die 0.5"})[0].value == 0.5);
}

TEST_CASE("a worker that closes its stdout is ended and its call made again") {
  Run run;
  CHECK(run.score({"give 1"})[0].value == 1.0);
  const auto scores = run.score({"close", "give 1"});
  CHECK(scores[0].why == Missing::failed);
  CHECK(scores[0].problem.find("closed its stdout") != std::string::npos);
  CHECK(scores[1].value == 1.0);
}

TEST_CASE("rewards that are no numbers are counted by reason") {
  Run run;
  const auto scores = run.score(
      {"give NaN", "give Infinity", "give null", "give \"0.5\"", "give true", "give 1e999", "give [1]", "give 0"});
  const std::vector<Missing> expected{Missing::not_finite,  Missing::not_finite,  Missing::null,
                                      Missing::not_numeric, Missing::not_numeric, Missing::not_finite,
                                      Missing::not_numeric, Missing::none};
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(scores[i].why == expected[i]);
  }
  CHECK(run.rewards->counters().tally.by_reason() == "1 null, 3 not_finite, 3 not_numeric");
  CHECK(run.rewards->counters().worker_ends == 0);
  CHECK_THROWS_AS(check_missing(run.rewards->counters().tally, 8, 0.5), Error);
}

TEST_CASE("a line that is no answer is told in words, and its worker starts again") {
  Run run;
  CHECK(run.score({"give 1"})[0].value == 1.0);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"line step 1 done", "is not JSON: \"step 1 done\""},
      {"line {\"reward\":1}", "without an \"id\""},
      {"line {\"id\":4711,\"reward\":1}", "a call that it does not hold"},
      {"line 0.5", "without an \"id\""},
      {"flood", "more than 1 MiB"}};
  for (const auto& [order, text] : cases) {
    CAPTURE(order);
    const auto scores = run.score({order, "give 1"});
    CHECK(scores[0].why == Missing::malformed);
    CAPTURE(scores[0].problem);
    CHECK(scores[0].problem.find(text) != std::string::npos);
    CHECK(scores[1].value == 1.0);
  }
  CHECK(eventually([&] {
    run.bench.check();
    return run.rewards->counters().worker_ends == 5;
  }));
}

TEST_CASE("large answers and large requests pass") {
  Run run;
  const auto scores = run.score({"long-text", "length " + std::string(2000000, 'y')});
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].value == 2000000.0);
}

TEST_CASE("a command that ends at once is an error that names it, its exit and its last words") {
  Run run({"fail", "127"});
  const std::string text = run.failure_of({"give 1"});
  CAPTURE(text);
  CHECK(text.find("reward command \"" + kChild + " fail 127\"") != std::string::npos);
  CHECK(text.find("exited with status 127, and so 3 times in a row without an answer") != std::string::npos);
  CHECK(text.find("| no module named x") != std::string::npos);
  CHECK(text.find("run it by hand") != std::string::npos);
}

TEST_CASE("a command that cannot be executed is an error at once") {
  Run run({}, [](RewardOptions& o) { o.command = {"/no/such/program"}; });
  const std::string text = run.failure_of({"give 1"});
  CHECK(text.find("could not be started: exec \"/no/such/program\": No such file or directory") != std::string::npos);
}

TEST_CASE("a command that prints before it is asked is told where to print") {
  Run run({"banner"});
  const std::string text = run.failure_of({"give 1", "give 1", "give 1", "give 1", "give 1"});
  CHECK(text.find("\"loading the model\"") != std::string::npos);
  CHECK(text.find("all else goes to stderr") != std::string::npos);
}

TEST_CASE("restarts are limited") {
  Run run({"command"}, [](RewardOptions& o) { o.num_workers = 1, o.max_restarts = 2; });
  CHECK(run.failure_of({"give 1", "die 5", "give 1", "die 5", "give 1"}).find("max_restarts 2 is used up") !=
        std::string::npos);
}

TEST_CASE("a worker has no descriptors but its three and the agent's") {
  Run run;
  CHECK(run.score({"descriptors"})[0].value.value() <= 4.0);
}

TEST_CASE("nothing is left of workers: no process, daemons included, no descriptor, no signal") {
  signal(SIGPIPE, SIG_DFL);  // a write to a dead worker must not end the driver
  pid_t daemon = 0, worker = 0;
  const size_t before = open_descriptors();
  {
    Run run;
    const auto scores = run.score({"daemon", "pid"});
    daemon = static_cast<pid_t>(scores[0].value.value());
    worker = static_cast<pid_t>(scores[1].value.value());
    CHECK(is_alive(daemon));
    run.score({"die-once " + (run.bench.folder().path() / "mark").string(), "give 1", "give 1"});
    run.rewards.reset();
    CHECK(eventually([&] {
      run.bench.check();
      return run.bench.living() == 0;
    }));
    CHECK_FALSE(is_alive(daemon));
    CHECK_FALSE(is_alive(worker));
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("nothing is left of workers when the driver is killed") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const std::string run_id = "k" + random_token();
  const pid_t driver = ::fork();
  if (driver == 0) {
    ::dup2(ends[1], 1);
    ::execl(kChild.c_str(), kChild.c_str(), "driver", VIME_BIN_DIR, run_id.c_str(), nullptr);
    ::_exit(1);
  }
  const UniqueFd output(ends[0]);
  ::close(ends[1]);
  std::string line;
  for (char c; ::read(output.get(), &c, 1) == 1 && c != '\n';) line += c;
  std::istringstream words(line);
  std::string up;
  pid_t daemon = 0, worker = 0;
  words >> up >> daemon >> worker;
  REQUIRE(up == "up");
  CHECK(is_alive(daemon));
  CHECK(is_alive(worker));
  ::kill(driver, SIGKILL);
  ::waitpid(driver, nullptr, 0);
  CHECK(eventually([&] { return !is_alive(daemon) && !is_alive(worker); }));
}

TEST_CASE("the example reward in Python scores a numeric answer") {
  Run run({}, [](RewardOptions& o) {
    o.command = {"python3", std::string(VIME_SOURCE_DIR) + "/configs/rewards/word_problem.py"};
  });
  std::vector<ScoreItem> list = items({"so it is 1,234.", "perhaps 7", "no idea", "-0.5"});
  for (ScoreItem& item : list) item.label = "1234";
  list[3].label = "-.5";
  std::vector<Score> result;
  run.rewards->submit(list, [&](std::vector<Score> scores) { result = std::move(scores); });
  run.rewards->finish(Deadline(seconds(60)), [&] { run.bench.check(); });
  REQUIRE(result.size() == 4);
  CHECK(result[0].value == 1.0);
  CHECK(result[1].value == 0.1);
  CHECK(result[2].value == 0.0);
  CHECK(result[3].value == 1.0);
}

TEST_CASE("the guide shows the example as it is") {
  const std::string source = VIME_SOURCE_DIR;
  const std::string program = read_file(source + "/configs/rewards/word_problem.py");
  const std::string code = program.substr(program.find("import json"));
  CHECK(read_file(source + "/docs/data-and-rewards.md").find("```python\n" + code + "```") != std::string::npos);
}

TEST_CASE("options that cannot be are refused with the key") {
  const auto refusal = [](const std::function<void(RewardOptions&)>& change) {
    RewardOptions options;
    change(options);
    try {
      check_options(options);
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::refused);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal([](RewardOptions&) {}).empty());
  CHECK(refusal([](RewardOptions& o) { o.type = "exact"; }).find("reward.type") == 0);
  CHECK(refusal([](RewardOptions& o) { o.type = "command"; }).find("reward.command") == 0);
  CHECK(refusal([](RewardOptions& o) { o.type = "http"; }).find("reward.url") == 0);
  CHECK(refusal([](RewardOptions& o) { o.group = true; }).find("reward.group_rm") == 0);
  CHECK(refusal([](RewardOptions& o) { o.num_workers = 0; }).find("reward.num_workers: expected 1 to") == 0);
  CHECK(refusal([](RewardOptions& o) { o.reward_key = ".a"; }).find("reward.reward_key") == 0);
  CHECK(refusal([](RewardOptions& o) { o.timeout = milliseconds(0); }).find("reward.timeout") == 0);
}
