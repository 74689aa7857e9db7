// An engine that holds weights and generates nothing: the real HTTP front and the real receivers, and workers that are
// threads with a device each. A process of its own in benchmarks and tests.
#pragma once

#include "base/json.hpp"

namespace vime::bench {

// options: {"model", "uuids": [of the workers' GPUs, or any on the host], "gpu": bool, "timeout_ms"}. Serves until its
// stdin ends; the exit status. Writes {"port"} and then a line for every line that it reads:
//   {"call": "copy", "handles": [one for each worker], "bytes", "repeat"}   plain copies from that memory into the
//       worker's own; {"ms": the quickest, of the slowest worker}
//   {"call": "broadcast", "unique_id", "bytes", "repeat"}   the workers receive plain broadcasts from rank 0; {}
//   {"call": "memory"}   {"free": bytes of each worker's device}
int serve_weights(const Json& options);

}  // namespace vime::bench
