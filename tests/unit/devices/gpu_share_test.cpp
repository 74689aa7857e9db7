#include "devices/gpu_share.hpp"

#include <doctest/doctest.h>

using namespace vime::devices;

namespace {

const std::string kGpu = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

}  // namespace

TEST_CASE("a share's UUID names its GPU, which one it is and of how many; a whole GPU's is its own") {
  CHECK(device_uuid({kGpu, 3, 8}) == kGpu + "/3of8");
  CHECK(device_uuid({kGpu, 0, 1}) == kGpu);
  for (const GpuShare& share : std::vector<GpuShare>{{kGpu, 0, 1}, {kGpu, 0, 2}, {kGpu, 7, 8}, {kGpu, 11, 64}}) {
    CHECK(share_of(device_uuid(share)) == share);
  }
}

TEST_CASE("any other text is the UUID of a whole GPU, which is then not found under that name") {
  for (const char* end : {"/", "/3", "/3of", "/of8", "/8of8", "/-1of8", "/3of8x", "/0of1", "/0of0", "/3 of 8", "3of8",
                          "/03of8", "/3of08", "/+3of8"}) {
    CAPTURE(end);
    CHECK(share_of(kGpu + end) == GpuShare{kGpu + end, 0, 1});
  }
}

TEST_CASE("few devices are on GPUs of their own, and each counts on its part of the memory") {
  const Inventory two{{{0, "a", "a GPU", 80, 9, 0}, {1, "b", "a GPU", 40, 9, 0}}, ""};
  const Inventory devices = divide(two, 2);
  REQUIRE(devices.gpus.size() == 4);
  std::vector<std::string> uuids;
  std::vector<uint64_t> memory;
  for (const Gpu& gpu : devices.gpus) {
    uuids.push_back(gpu.uuid);
    memory.push_back(gpu.memory_bytes);
    CHECK(gpu.ordinal == (share_of(gpu.uuid).gpu == "a" ? 0 : 1));
  }
  CHECK(uuids == std::vector<std::string>{"a/0of2", "b/0of2", "a/1of2", "b/1of2"});
  CHECK(memory == std::vector<uint64_t>{40, 20, 40, 20});
}

TEST_CASE("GPUs that are not divided are as they were, and so is the reason for there being none") {
  const Inventory one{{{0, "a", "a GPU", 80, 9, 0}}, ""};
  CHECK(divide(one, 1).gpus.at(0).uuid == "a");
  const Inventory none{{}, "the drawer is empty"};
  CHECK(divide(none, 8).gpus.empty());
  CHECK(divide(none, 8).reason == "the drawer is empty");
}

TEST_CASE("what there is and what would do are said in the words of the option") {
  CHECK(count_text(1, 1) == "1 GPU");
  CHECK(count_text(2, 2) == "2 GPUs");
  CHECK(count_text(1, 8) == "1 GPU for 8 devices");
  CHECK(cure_by_sharing("--devices-per-gpu", 8, 2) == "with --devices-per-gpu 4 they share GPUs");
  CHECK(cure_by_sharing("x", 9, 2) == "with x 5 they share GPUs");
  CHECK(cure_by_sharing("x", 64, 1) == "with x 64 they share GPUs");
  CHECK(cure_by_sharing("x", 65, 1) == "");
}
