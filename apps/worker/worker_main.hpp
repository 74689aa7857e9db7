// What the worker module does once it is loaded. The module exports one C function that calls this.
#pragma once

#include "executor/serve_engine.hpp"
#include "trainer/serve.hpp"

namespace vime {

// role: "engine", "trainer" or "bench"; options: the role's options as JSON; argc and argv: main's, for the process
// titles. Returns the exit status; throws nothing.
int worker_main(const char* role, const char* options, int argc, char** argv, const executor::WrapExecutor& wrap = {},
                const trainer::MakeRank& make_rank = {});

}  // namespace vime
