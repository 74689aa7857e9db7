#include "worker_module.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <iterator>
#include <optional>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "proc/process.hpp"

namespace vime::app {
namespace {

using WorkerMain = int (*)(const char* role, const char* options, int argc, char** argv);

int module_argc = 0;
char** module_argv = nullptr;
WorkerMain loaded_main = nullptr;

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

void load_worker_module() {
  if (loaded_main != nullptr) return;
  // Another module may be named, so that tests can run one with a planted fault.
  const char* named = std::getenv(kModuleVariable);
  const fs::path path =
      named != nullptr ? fs::path(named) : fs::path(proc::own_binary()).parent_path() / "libvime_worker.so";
  name_processor_to_blas();
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    throw Error(ErrorKind::refused, std::string("load the worker module: ") + ::dlerror(),
                "this build may be one without LibTorch");
  }
  loaded_main = reinterpret_cast<WorkerMain>(::dlsym(module, "vime_worker_main"));
  if (loaded_main == nullptr) throw Error(ErrorKind::refused, path.string() + " is not vime's worker module");
}

// Gives a variable of the environment back the value that it had, or none.
class KeptVariable {
 public:
  explicit KeptVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) value_ = value;
  }
  ~KeptVariable() {
    if (value_) {
      ::setenv(name_, value_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  KeptVariable(const KeptVariable&) = delete;
  KeptVariable& operator=(const KeptVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> value_;
};

bool has_one_thread() {
  const fs::directory_iterator threads("/proc/self/task");
  return std::distance(fs::begin(threads), fs::end(threads)) == 1;
}

}  // namespace

void remember_module_arguments(int argc, char** argv) {
  module_argc = argc;
  module_argv = argv;
}

bool preload_worker_module() {
  const KeptVariable blas_core("OPENBLAS_CORETYPE"), blas_threads("OPENBLAS_NUM_THREADS");
  // OpenBLAS starts its threads while it is loaded; a fork would leave them behind. Workers set how many they want.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  try {
    load_worker_module();
  } catch (const Error&) {
    return false;
  }
  if (has_one_thread()) return true;
  log::warning("agent", "the worker module starts threads when it is loaded, so every worker has to load it itself");
  return false;
}

int run_worker_module(const std::string& role, const Json& options) {
  load_worker_module();
  return loaded_main(role.c_str(), options.dump().c_str(), module_argc, module_argv);
}

std::string run_token() {
  const char* token = std::getenv("VIME_RUN_TOKEN");
  return token == nullptr ? "" : token;
}

}  // namespace vime::app
