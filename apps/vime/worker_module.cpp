#include "worker_module.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/files.hpp"
#include "proc/process.hpp"

namespace vime::app {
namespace {

int module_argc = 0;
char** module_argv = nullptr;

// OpenBLAS takes a processor that is newer than itself for the oldest one and then computes several times slower
// (version 0.3.21 and its "Prescott" kernels on Sapphire Rapids). It reads this variable while it is loaded; a value
// that the user has set stays.
void name_processor_to_blas() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    ::setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    ::setenv("OPENBLAS_CORETYPE", "Haswell", 0);
  }
#endif
}

}  // namespace

void remember_module_arguments(int argc, char** argv) {
  module_argc = argc;
  module_argv = argv;
}

int run_worker_module(const std::string& role, const Json& options) {
  // Another module may be named, so that tests can run one with a planted fault.
  const char* named = std::getenv("VIME_WORKER_MODULE");
  const fs::path path =
      named != nullptr ? fs::path(named) : fs::path(proc::own_binary()).parent_path() / "libvime_worker.so";
  name_processor_to_blas();
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    throw Error(ErrorKind::refused, std::string("load the worker module: ") + ::dlerror(),
                "this build may be one without LibTorch");
  }
  using Main = int (*)(const char*, const char*, int, char**);
  const auto worker_main = reinterpret_cast<Main>(::dlsym(module, "vime_worker_main"));
  if (worker_main == nullptr) throw Error(ErrorKind::refused, path.string() + " is not vime's worker module");
  return worker_main(role.c_str(), options.dump().c_str(), module_argc, module_argv);
}

std::string run_token() {
  const char* token = std::getenv("VIME_RUN_TOKEN");
  return token == nullptr ? "" : token;
}

}  // namespace vime::app
