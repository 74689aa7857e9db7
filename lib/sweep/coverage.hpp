// Whether the ranks of a leg together hold everything exactly as often as the layout says: each data- and
// context-parallel replica owns every element of every parameter once (copies are marked as such), and every response
// token was computed by exactly one data-parallel rank. Pure.
#pragma once

#include "sweep/check.hpp"
#include "sweep/record.hpp"

namespace vime::sweep {

// error: the number of rows, columns and tokens that are held by nobody or by more than one.
Check check_coverage(const StepRecord& baseline, const StepRecord& leg);

}  // namespace vime::sweep
