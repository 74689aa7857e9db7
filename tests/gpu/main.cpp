// Runs the doctest cases, or exits with 77 (skipped) where there are too few GPUs.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "gpu/device.hpp"
#include "gpu/roles.hpp"

int main(int argc, char** argv) {
  if (const int status = vime::test::run_role(argc, argv); status >= 0) return status;
  if (const int count = vime::gpu::device_count(); count < VIME_TEST_DEVICES) {
    std::printf("skipped: %d GPUs needed, %d found\n", VIME_TEST_DEVICES, count);
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
