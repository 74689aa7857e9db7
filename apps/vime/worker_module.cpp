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
