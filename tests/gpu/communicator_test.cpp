// NCCL between this process (rank 0) and another one (rank 1), which does what it should, dies, hangs or gets it wrong.
#include "gpu/communicator.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/roles.hpp"

using namespace vime;
using gpu::Communicator;
using gpu::Reduction;
using gpu::Scalar;

namespace {

constexpr milliseconds kPatient{60'000};
constexpr milliseconds kShort{2'000};
constexpr uint64_t kCount = 1 << 20;

// A process's first use of its GPU takes long on a busy machine; it does not count as waiting for another rank.
void warm_up(int rank) {
  gpu::select_device(gpu::device_uuid(rank));
  gpu::synchronize();
}

std::unique_ptr<Communicator> join(int rank, const std::string& id, milliseconds timeout) {
  warm_up(rank);
  return std::make_unique<Communicator>(gpu::CommunicatorOptions{"test", rank, 2, timeout}, id);
}

// Whole numbers, so that float sums are exact whatever their order.
float value_of(int rank, uint64_t i) {
  return static_cast<float>(mix_key(static_cast<uint64_t>(rank), i) % 1000);
}

class Floats {
 public:
  explicit Floats(uint64_t count) : memory_(count * sizeof(float)), count_(count) {}
  Floats(uint64_t count, const std::function<float(uint64_t)>& value) : Floats(count) {
    std::vector<float> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = value(i);
    cudaMemcpy(memory_.data(), values.data(), memory_.bytes(), cudaMemcpyHostToDevice);
  }
  std::byte* data() const { return memory_.data(); }
  uint64_t bytes() const { return memory_.bytes(); }
  uint64_t wrong(const std::function<float(uint64_t)>& value) const {
    std::vector<float> values(count_);
    cudaMemcpy(values.data(), memory_.data(), memory_.bytes(), cudaMemcpyDeviceToHost);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count_; ++i) wrong += values[i] == value(i) ? 0 : 1;
    return wrong;
  }

 private:
  gpu::DeviceMemory memory_;
  uint64_t count_;
};

uint64_t wrong_bf16_sums(Communicator& group, cudaStream_t stream) {
  std::vector<uint16_t> values(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {  // 0 to 7: bfloat16 and its sums are exact
    const auto value = static_cast<float>(mix_key(static_cast<uint64_t>(group.rank()), i) % 8);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    values[i] = static_cast<uint16_t>(bits >> 16);
  }
  const gpu::DeviceMemory memory(kCount * 2);
  cudaMemcpy(memory.data(), values.data(), memory.bytes(), cudaMemcpyHostToDevice);
  group.all_reduce(memory.data(), memory.data(), kCount, Scalar::bf16, Reduction::sum, stream);
  group.wait(stream);
  cudaMemcpy(values.data(), memory.data(), memory.bytes(), cudaMemcpyDeviceToHost);
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint32_t bits = static_cast<uint32_t>(values[i]) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    wrong += value == static_cast<float>(mix_key(0, i) % 8 + mix_key(1, i) % 8) ? 0 : 1;
  }
  return wrong;
}

// Every operation, as both ranks do it; how many elements came out wrong.
uint64_t every_operation(Communicator& group) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const int rank = group.rank(), other = 1 - rank;
  const auto mine = [&](uint64_t i) { return value_of(rank, i); };
  const auto sum = [](uint64_t i) { return value_of(0, i) + value_of(1, i); };
  uint64_t wrong = 0;

  const Floats sent(kCount, mine);
  group.broadcast(sent.data(), sent.bytes(), 1, stream);
  group.wait(stream);
  wrong += sent.wrong([](uint64_t i) { return value_of(1, i); });

  const Floats own(kCount, mine), all(2 * kCount), reduced(kCount), part(kCount / 2), swapped(kCount);
  group.all_gather(own.data(), all.data(), own.bytes(), stream);
  group.all_reduce(own.data(), reduced.data(), kCount, Scalar::f32, Reduction::sum, stream);
  group.reduce_scatter(own.data(), part.data(), kCount / 2, Scalar::f32, Reduction::sum, stream);
  group.exchange({{other, own.data(), own.bytes()}}, {{other, swapped.data(), swapped.bytes()}}, stream);
  group.wait(stream);
  wrong += all.wrong([](uint64_t i) { return value_of(static_cast<int>(i / kCount), i % kCount); });
  wrong += reduced.wrong(sum);
  wrong += part.wrong([&](uint64_t i) { return sum(i + static_cast<uint64_t>(rank) * kCount / 2); });
  wrong += swapped.wrong([&](uint64_t i) { return value_of(other, i); });

  group.all_reduce(own.data(), own.data(), kCount, Scalar::f32, Reduction::max, stream);
  group.wait(stream);
  wrong += own.wrong([](uint64_t i) { return std::max(value_of(0, i), value_of(1, i)); });
  wrong += wrong_bf16_sums(group, stream);
  cudaStreamDestroy(stream);
  return wrong;
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
