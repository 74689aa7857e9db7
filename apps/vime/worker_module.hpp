// The module beside the binary that holds everything which needs LibTorch; loaded by `vime trainer` and `vime engine`
// only.
#pragma once

#include <string>

#include "base/json.hpp"

namespace vime::app {

// The environment variable that names another module than the one beside the binary.
inline constexpr const char* kModuleVariable = "VIME_WORKER_MODULE";

// main's arguments, for the module's process titles. Call first.
void remember_module_arguments(int argc, char** argv);

// Loads the module into a process that will fork the workers and then stay as it was: the environment is the same
// afterwards, and no thread has come up. False when that cannot be had; each worker then loads the module itself, and
// tells what is wrong with it.
bool preload_worker_module();

// Loads the module, unless it is loaded already, and runs it as `role` ("trainer", "engine"). Returns the exit status.
// Error{refused} when the module is not there or cannot be loaded.
int run_worker_module(const std::string& role, const Json& options);

// The run's token, from the environment: everybody on a machine may read a command line. "" when there is none.
std::string run_token();

}  // namespace vime::app
