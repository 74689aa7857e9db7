// Which keys of the spec a sweep decides itself, so that one who sets them on the command line is told, not passed
// over. Pure.
#pragma once

#include <string>
#include <vector>

#include "sweep/leg_spec.hpp"

namespace vime::sweep {

// Error{refused} naming the keys of these overrides ("trainer.lr=1e-3") that make no difference to any leg's spec, be
// their value what it may. base: with the overrides.
void require_effect(const std::vector<std::string>& overrides, const spec::ExperimentSpec& base,
                    const std::vector<Leg>& legs, const LegSettings& settings);

}  // namespace vime::sweep
