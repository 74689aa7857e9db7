// Two devices on one GPU: what each sees of it, and that they exchange memory.
#include <doctest/doctest.h>

#include <cstdio>
#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "devices/gpu_share.hpp"
#include "gpu/device.hpp"
#include "gpu/every_operation.hpp"
#include "gpu/ipc.hpp"
#include "gpu/roles.hpp"

using namespace vime;

namespace {

constexpr milliseconds kPatient{60'000};

std::string share(int index, int of = 2) {
  return devices::device_uuid({gpu::device_uuid(0), index, of});
}

std::unique_ptr<gpu::Communicator> join(int rank, const std::string& id) {
  return std::make_unique<gpu::Communicator>(gpu::CommunicatorOptions{"test", rank, 2, kPatient}, id);
}

const test::Role peer("peer", [](const std::vector<std::string>& arguments) {
  gpu::select_device(share(1));
  const auto group = join(1, arguments.at(0));
  return test::every_operation(*group) == 0 ? 0 : 3;
});

// Prints how many of the floats behind a handle are wrong.
const test::Role reader("reader", [](const std::vector<std::string>& arguments) {
  gpu::select_device(share(1));
  const gpu::IpcMapping mapping(arguments.at(0));
  std::vector<float> values(test::kCount);
  if (cudaMemcpy(values.data(), mapping.data(), mapping.bytes(), cudaMemcpyDeviceToHost) != cudaSuccess) return 3;
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < test::kCount; ++i) wrong += values[i] == test::value_of(0, i) ? 0 : 1;
  std::printf("%llu\n", static_cast<unsigned long long>(wrong));
  return 0;
});

}  // namespace

TEST_CASE("ranks on shares of one GPU exchange memory as those on GPUs of their own do") {
  gpu::select_device(share(0));
  const std::string id = gpu::Communicator::unique_id();
  test::RoleProcess other("peer", {id});
  auto group = join(0, id);
  CHECK(test::every_operation(*group) == 0);
  group.reset();
  CHECK(other.wait() == 0);
}

TEST_CASE("a share reads what another has by its handle, and reaches it") {
  gpu::select_device(share(0));
  CHECK(gpu::reaches(share(1)));
  CHECK(gpu::reaches(gpu::device_uuid(0)));
  CHECK_NOTHROW(gpu::read_from(share(1)));
  const gpu::DeviceMemory memory(test::kCount * sizeof(float));
  std::vector<float> values(test::kCount);
  for (uint64_t i = 0; i < test::kCount; ++i) values[i] = test::value_of(0, i);
  REQUIRE(cudaMemcpy(memory.data(), values.data(), memory.bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  test::RoleProcess process("reader", {memory.handle()});
  CHECK(process.read_line() == "0");
  CHECK(process.wait() == 0);
}

TEST_CASE("the thread that selects a share knows of how many it is, and one that selects a GPU has it alone") {
  CHECK(gpu::select_device(share(3, 4)) == 0);
  CHECK(gpu::devices_on_gpu() == 4);
  std::thread([] { CHECK(gpu::devices_on_gpu() == 1); }).join();
  CHECK(gpu::select_device(gpu::device_uuid(0)) == 0);
  CHECK(gpu::devices_on_gpu() == 1);
}

TEST_CASE("a share of a GPU that is not there is refused") {
  CHECK_THROWS_AS(gpu::select_device("00000000-0000-0000-0000-000000000000/0of2"), Error);
  CHECK_THROWS_AS(gpu::select_device(gpu::device_uuid(0) + "/2of2"), Error);
  CHECK_FALSE(gpu::reaches("00000000-0000-0000-0000-000000000000/0of2"));
}
