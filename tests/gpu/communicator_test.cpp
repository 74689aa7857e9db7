// NCCL between this process (rank 0) and another one (rank 1), which does what it should, dies, hangs or gets it wrong.
#include "gpu/communicator.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "gpu/device.hpp"
#include "gpu/every_operation.hpp"
#include "gpu/roles.hpp"

using namespace vime;
using gpu::Communicator;
using gpu::Reduction;
using gpu::Scalar;
using test::every_operation;
using test::Floats;
using test::kCount;

namespace {

constexpr milliseconds kPatient{60'000};
constexpr milliseconds kShort{2'000};

// A process's first use of its GPU takes long on a busy machine; it does not count as waiting for another rank.
void warm_up(int rank) {
  gpu::select_device(gpu::device_uuid(rank));
  gpu::synchronize();
}

std::unique_ptr<Communicator> join(int rank, const std::string& id, milliseconds timeout) {
  warm_up(rank);
  return std::make_unique<Communicator>(gpu::CommunicatorOptions{"test", rank, 2, timeout}, id);
}

// As rank 1, when the other process knows that it is here.
std::unique_ptr<Communicator> join_as_peer(const std::string& id, milliseconds timeout) {
  warm_up(1);
  std::printf("here\n");
  std::fflush(stdout);
  return join(1, id, timeout);
}

const test::Role good_peer("good", [](const std::vector<std::string>& arguments) {
  const auto group = join_as_peer(arguments.at(0), kPatient);
  return every_operation(*group) == 0 ? 0 : 3;
});

// Joins, takes part in one broadcast, says so, and does nothing more; its patience is longer than the test's.
const test::Role idle_peer("idle", [](const std::vector<std::string>& arguments) {
  const auto group = join_as_peer(arguments.at(0), kPatient);
  const Floats floats(kCount);
  group->broadcast(floats.data(), floats.bytes(), 0, nullptr);
  group->wait(nullptr);
  std::printf("joined\n");
  std::fflush(stdout);
  std::getchar();
  return 0;
});

const test::Role small_peer("small", [](const std::vector<std::string>& arguments) {
  const auto group = join_as_peer(arguments.at(0), kShort);
  const Floats floats(kCount);
  try {
    group->broadcast(floats.data(), 4096, 0, nullptr);
    group->wait(nullptr);
    group->broadcast(floats.data(), 4096, 0, nullptr);
    group->wait(nullptr);
  } catch (const Error&) {
  }
  return 0;
});

struct Pair {
  std::string id = Communicator::unique_id();
  test::RoleProcess peer;
  std::unique_ptr<Communicator> group;

  Pair(const char* role, milliseconds timeout) : peer(role, {id}) {
    warm_up(0);
    CHECK(peer.read_line() == "here");
    group = join(0, id, timeout);
  }
  void broadcast(uint64_t count) {
    const Floats floats(count);
    group->broadcast(floats.data(), floats.bytes(), 0, nullptr);
    group->wait(nullptr);
  }
};

// The error of a call that has to fail, and how long it took.
struct Failure {
  std::string message;
  double seconds = 0;
};
Failure failure_of(const std::function<void()>& call) {
  const auto start = SteadyClock::now();
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::process_failed);
    return {error.message(), seconds_since(start)};
  }
  return {"", seconds_since(start)};
}

bool has(const Failure& failure, const char* text) {
  return failure.message.find(text) != std::string::npos;
}

// The GPU works on after an abort.
void check_device() {
  const Floats floats(1000, [](uint64_t i) { return static_cast<float>(i); });
  CHECK(floats.wrong([](uint64_t i) { return static_cast<float>(i); }) == 0);
  gpu::synchronize();
}

}  // namespace

TEST_CASE("every operation gives both ranks the right elements") {
  Pair pair("good", kPatient);
  CHECK(every_operation(*pair.group) == 0);
  pair.group.reset();
  CHECK(pair.peer.wait() == 0);
}

TEST_CASE("a peer that never comes is named by the group's error at the deadline") {
  const Failure failure = failure_of([] { join(0, Communicator::unique_id(), kShort); });
  CHECK(has(failure, "NCCL group test, rank 0 of 2 on GPU 0: join: another rank did not come within 2.0"));
  CHECK(failure.seconds < 6);
  check_device();
}

TEST_CASE("a peer that was killed or hangs ends the wait at the deadline, and a new group works afterwards") {
  for (const bool killed : {true, false}) {
    CAPTURE(killed);
    Pair pair("idle", kShort);
    pair.broadcast(kCount);
    CHECK(pair.peer.read_line() == "joined");
    killed ? pair.peer.kill() : pair.peer.stop();
    const Failure failure = failure_of([&] {
      for (int i = 0; i < 64; ++i) pair.broadcast(64 * kCount);
    });
    CHECK(has(failure, "NCCL group test, rank 0 of 2 on GPU 0: "));
    CHECK(has(failure, "within 2.0"));
    CHECK(failure.seconds < 6);
    CHECK(pair.group->broken());
    const Failure again = failure_of([&] { pair.broadcast(kCount); });
    CHECK(again.message == failure.message);
    CHECK(again.seconds < 1);
    check_device();
  }
  Pair pair("good", kPatient);
  CHECK(every_operation(*pair.group) == 0);
}

TEST_CASE("a wait that knows nothing of the group ends too when a peer hangs") {
  Pair pair("idle", kShort);
  pair.broadcast(kCount);
  CHECK(pair.peer.read_line() == "joined");
  pair.peer.stop();
  const Floats floats(64 * kCount);
  const auto start = SteadyClock::now();
  const Failure failure = failure_of([&] {
    pair.group->all_reduce(floats.data(), floats.data(), 64 * kCount, Scalar::f32, Reduction::sum, nullptr);
    cudaStreamSynchronize(nullptr);
    pair.group->all_reduce(floats.data(), floats.data(), 64 * kCount, Scalar::f32, Reduction::sum, nullptr);
  });
  CHECK(seconds_since(start) < 6);
  CHECK(has(failure, "all-reduce of 256.00 MiB"));
}

TEST_CASE("ranks that disagree about the bytes get an error, not a hang") {
  Pair pair("small", kShort);
  const Failure failure = failure_of([&] {
    for (int i = 0; i < 3; ++i) pair.broadcast(64 * kCount);
  });
  CHECK(has(failure, "broadcast of 256.00 MiB"));
  CHECK(failure.seconds < 6);
}

TEST_CASE("leaving from another thread ends a wait at once") {
  Pair pair("idle", kPatient);
  pair.broadcast(kCount);
  CHECK(pair.peer.read_line() == "joined");
  std::jthread other([&] {
    std::this_thread::sleep_for(milliseconds(300));
    pair.group->leave("engine 1 answered 500");
  });
  const Failure failure = failure_of([&] {
    for (int i = 0; i < 64; ++i) pair.broadcast(64 * kCount);
  });
  CHECK(has(failure, "engine 1 answered 500") != has(failure, "this rank leaves the group"));
  CHECK(failure.seconds < 5);
  check_device();
}

TEST_CASE("text that is no id is refused") {
  CHECK_THROWS_AS(join(0, "deadbeef", kShort), Error);
}
