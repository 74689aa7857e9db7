// What a person reads at the end of a run, and the small texts around it.
#pragma once

#include <string>
#include <vector>

#include "loop/prepare.hpp"
#include "loop/run_directory.hpp"
#include "report/summary.hpp"

namespace vime::loop {

// On stdout: status, steps, versions, evaluations, the reward curve, and where everything lies.
void print_closing(const report::Summary& summary, const std::vector<double>& rewards, const Parts& parts,
                   const RunDirectory& directory);

}  // namespace vime::loop
