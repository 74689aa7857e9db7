#include "devices/devices.hpp"

#include <doctest/doctest.h>

using namespace vime;

TEST_CASE("a UUID is written as CUDA's tools write it, in lower case and without prefix") {
  const unsigned char bytes[16] = {0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f, 0x60, 0x71,
                                   0x82, 0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8, 0xf9};
  CHECK(devices::format_uuid(bytes) == "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9");
}

TEST_CASE("a machine has GPUs, each with a UUID of its own, or a reason why not") {
  const devices::Inventory inventory = devices::find_gpus();
  CHECK(inventory.gpus.empty() == !inventory.reason.empty());
  for (const devices::Gpu& gpu : inventory.gpus) {
    CHECK(gpu.uuid.size() == 36);
    CHECK(gpu.memory_bytes > 0);
    CHECK(gpu.major > 0);
    for (const devices::Gpu& other : inventory.gpus) CHECK((other.uuid == gpu.uuid) == (other.ordinal == gpu.ordinal));
  }
}
