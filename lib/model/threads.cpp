#include "model/threads.hpp"

#include <dlfcn.h>
#include <torch/types.h>

namespace vime::model {

// LibTorch's setting does not reach an OpenBLAS with threads of its own.
void limit_threads(int threads) {
  at::set_num_threads(threads);
  using SetThreads = void (*)(int);
  if (void* const symbol = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<SetThreads>(symbol)(threads);
  }
}

}  // namespace vime::model
