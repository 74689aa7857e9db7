// The experiment that a sweep's legs are made from: the user's, or one that is built in. Parsing blocks on the disk
// only.
#pragma once

#include <string>
#include <vector>

#include "spec/spec.hpp"

namespace vime::sweep {

// config "": a small random model that every layout can cut, GRPO with a KL to the start and an entropy bonus, and
// micro-batches small enough that ranks have several. overrides: of --set. Error{refused} for whatever spec::load
// refuses.
spec::ExperimentSpec base_spec(const std::string& config, const std::vector<std::string>& overrides);

}  // namespace vime::sweep
