// The module beside the binary that holds everything which needs LibTorch; loaded by `vime trainer` and `vime engine`
// only.
#pragma once

#include <string>

#include "base/json.hpp"

namespace vime::app {

// main's arguments, for the module's process titles. Call first.
void remember_module_arguments(int argc, char** argv);

// Loads the module and runs it as `role` ("trainer", "engine"). Returns the exit status. Error{refused} when the module
// is not there or cannot be loaded.
int run_worker_module(const std::string& role, const Json& options);

// The run's token, from the environment: everybody on a machine may read a command line. "" when there is none.
std::string run_token();

}  // namespace vime::app
