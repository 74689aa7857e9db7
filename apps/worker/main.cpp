// The module that `vime trainer` and `vime engine` load at run time, so that only these processes pay for LibTorch.
// lib/base and lib/proc exist twice in such a process, once in the binary and once here; what their globals hold is set here again.
#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "base/json.hpp"
#include "executor/serve.hpp"
#include "proc/process.hpp"
#include "trainer/serve.hpp"

// role: "engine" or "trainer"; options: the role's options as JSON. Returns the exit status.
extern "C" __attribute__((visibility("default"))) int vime_worker_main(const char* role, const char* options, int argc,
                                                                       char** argv) {
  try {
    vime::proc::remember_arguments(argc, argv);
    const vime::Json json = vime::parse_json(options, "worker options", vime::ErrorKind::internal);
    if (std::string(role) == "engine") return vime::executor::serve_engine(vime::executor::engine_options(json));
    if (std::string(role) == "trainer") return vime::trainer::serve_trainer(vime::trainer::trainer_options(json));
    throw vime::Error(vime::ErrorKind::internal, std::string("unknown worker role ") + role);
  } catch (const vime::Error& error) {
    std::fprintf(stderr, "vime %s: %s\n", role, error.what());
    return vime::exit_status(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vime %s: %s\n", role, error.what());
    return vime::exit_status(vime::ErrorKind::internal);
  }
}
