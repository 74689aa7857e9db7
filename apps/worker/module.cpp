// The module that `vime trainer` and `vime engine` load at run time, so that only these processes pay for LibTorch.
// lib/base and lib/proc exist twice in such a process, once in the binary and once here; what their globals hold is set
// here again.
#include "worker_main.hpp"

extern "C" __attribute__((visibility("default"))) int vime_worker_main(const char* role, const char* options, int argc,
                                                                       char** argv) {
  return vime::worker_main(role, options, argc, argv);
}
