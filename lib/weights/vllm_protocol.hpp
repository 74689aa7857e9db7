// Pushes into vLLM servers: see vllm/bodies.hpp for what they are sent.
#pragma once

#include <memory>
#include <string>

#include "weights/engine_protocol.hpp"

namespace vime::weights {

// version: what the server says. Error{refused} for a release that cannot be driven.
std::shared_ptr<const EngineProtocol> vllm_protocol(const std::string& version, uint64_t buffer_bytes);

}  // namespace vime::weights
