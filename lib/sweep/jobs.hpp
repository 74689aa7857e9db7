// How many legs run side by side, and on which devices. Pure; a BusyDevices is one thread's at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sweep/plan.hpp"

namespace vime::sweep {

// The most memory that one leg takes of a GPU, about: a trainer rank with the whole model, and an engine's worker.
uint64_t leg_bytes(const SweepPlan& plan);

// On GPUs as many as fit into the smallest of them, since a leg is mostly starts and waits, but no more than 4, which
// no measurement stands behind yet. One on GPUs that several devices share, where legs would only wait for each other,
// and on the CPU: a leg of 8 devices is 16 processes.
int default_jobs(const SweepPlan& plan);

// The devices of the legs that are running. A leg takes neighbouring devices, those with the fewest legs.
class BusyDevices {
 public:
  explicit BusyDevices(size_t devices) : legs_(devices, 0) {}

  // The first of `count` devices; 0 where there are not so many (on virtual ones nobody counts).
  size_t take(size_t count);
  void give_back(size_t first, size_t count);

 private:
  void add(size_t first, size_t count, int legs);

  std::vector<int> legs_;  // on each device
};

}  // namespace vime::sweep
