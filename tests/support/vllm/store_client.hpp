// What one vLLM worker does with torch's TCPStore before a collective: the very bytes of its client (VALIDATE, PING,
// ADD init/, WAIT, GET), every message of both directions in the trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "support/vllm/trace.hpp"

namespace vime::stand_in {

// The value of broadcast_from/0/0. Blocks until it is there. WorkerError when the server is not one, closes, or is
// silent for `timeout`.
std::string fetch_unique_id(int worker, const std::string& host, uint16_t port, std::chrono::milliseconds timeout,
                            Trace& trace);

}  // namespace vime::stand_in
