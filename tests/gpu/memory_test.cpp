#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "devices/devices.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/ipc.hpp"
#include "gpu/roles.hpp"

using namespace vime;

namespace {

// Prints the sum of the 64-bit words behind a handle.
const test::Role reader("reader", [](const std::vector<std::string>& arguments) {
  try {
    gpu::select_device(arguments.at(0));
    const gpu::IpcMapping mapping(arguments.at(1));
    std::vector<uint64_t> words(mapping.bytes() / sizeof(uint64_t));
    if (cudaMemcpy(words.data(), mapping.data(), mapping.bytes(), cudaMemcpyDeviceToHost) != cudaSuccess) return 3;
    uint64_t sum = 0;
    for (const uint64_t word : words) sum += word;
    std::printf("%llu\n", static_cast<unsigned long long>(sum));
    return 0;
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    return 4;
  }
});

// Prints a handle of its memory and ends at a word.
const test::Role owner("owner", [](const std::vector<std::string>& arguments) {
  gpu::select_device(arguments.at(0));
  const gpu::DeviceMemory memory(1 << 20);
  std::printf("%s\n", memory.handle().c_str());
  std::fflush(stdout);
  return std::getchar() == EOF ? 1 : 0;
});

uint64_t fill(gpu::DeviceMemory& memory, uint64_t seed) {
  std::vector<uint64_t> words(memory.bytes() / sizeof(uint64_t));
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) sum += words[i] = mix_key(seed, i);
  REQUIRE(cudaMemcpy(memory.data(), words.data(), memory.bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
  return sum;
}

}  // namespace

TEST_CASE("CUDA and the driver library name the same GPUs") {
  const devices::Inventory inventory = devices::find_gpus();
  REQUIRE(static_cast<int>(inventory.gpus.size()) == gpu::device_count());
  for (const devices::Gpu& one : inventory.gpus) {
    CHECK(gpu::device_uuid(one.ordinal) == one.uuid);
    CHECK(gpu::select_device(one.uuid) == one.ordinal);
  }
  gpu::select_device(gpu::device_uuid(0));
}

TEST_CASE("a UUID that is not there is refused with those that are") {
  try {
    gpu::select_device("00000000-0000-0000-0000-000000000000");
    FAIL("selected");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.message().find(gpu::device_uuid(0)) != std::string::npos);
  }
}

TEST_CASE("another process reads this one's memory by its handle, small and odd sizes too") {
  const std::string uuid = gpu::device_uuid(gpu::select_device(gpu::device_uuid(0)));
  uint64_t seed = 1;
  std::vector<std::unique_ptr<gpu::DeviceMemory>> neighbours;
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{4096}, uint64_t{1} << 20, (uint64_t{3} << 20) + 8}) {
    neighbours.push_back(std::make_unique<gpu::DeviceMemory>(64));
    gpu::DeviceMemory memory(bytes);
    const uint64_t sum = fill(memory, seed++);
    test::RoleProcess process("reader", {uuid, memory.handle()});
    const std::string line = process.read_line();
    CHECK(process.wait() == 0);
    CHECK(line == std::to_string(sum));
  }
}

TEST_CASE("memory that is not there is an error with the free bytes, and the device still works afterwards") {
  try {
    const gpu::DeviceMemory memory(uint64_t{1} << 50);
    FAIL("allocated");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::exhausted);
    CHECK(error.message().find("are free") != std::string::npos);
  }
  const gpu::DeviceMemory memory(1 << 20);
  gpu::synchronize();
}

TEST_CASE("text that is no handle is refused, a handle whose owner has gone is an error") {
  CHECK_THROWS_AS(gpu::IpcMapping("memfd:1:2:3"), Error);
  CHECK_THROWS_AS(gpu::IpcMapping("cuda:8:nonce:zz"), Error);
  const std::string uuid = gpu::device_uuid(gpu::select_device(gpu::device_uuid(0)));
  test::RoleProcess process("owner", {uuid});
  const std::string handle = process.read_line();
  const auto reads = [&] {
    test::RoleProcess of("reader", {uuid, handle});
    return of.wait();
  };
  CHECK(reads() == 0);
  process.write_line("enough");
  CHECK(process.wait() == 0);
  CHECK(reads() == 4);  // an Error that it caught
  CHECK_THROWS_AS(gpu::IpcMapping{handle}, Error);
}

TEST_CASE("a handle of this very process's memory is an error") {
  const gpu::DeviceMemory memory(1 << 20);
  CHECK_THROWS_AS(gpu::IpcMapping{memory.handle()}, Error);
}
