// `vime eval`: the evaluation data sets of a spec, answered by engines that hold the weights of a model folder.
#pragma once

#include <string>

#include "base/files.hpp"
#include "spec/spec.hpp"

namespace vime::loop {

struct EvalOptions {
  spec::ExperimentSpec spec;  // with model.path
  bool json = false;          // on stdout instead of a table
  std::string vime_binary;
};

// Prints the results and returns 0. Error before and after anything was started; nothing is left behind.
int evaluate_model(const EvalOptions& options);

}  // namespace vime::loop
