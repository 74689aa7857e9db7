// The answers of /v1/completions and /inference/v1/generate. Pure functions; they run on the reply thread.
#pragma once

#include <string>
#include <vector>

#include "engine/request.hpp"
#include "http/server.hpp"

namespace vime::engine {

// results: one per prompt of the call. Choices carry `weight_versions`, spans of output tokens by the weights that made
// them.
http::Response completion_reply(const CompletionCall& call, const std::vector<GenerationResult>& results,
                                const std::string& model, const TextCodec& text);
http::Response generate_reply(const CompletionCall& call, const std::vector<GenerationResult>& results,
                              const std::string& model);

}  // namespace vime::engine
