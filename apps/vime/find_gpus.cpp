#include "commands.hpp"

namespace vime::app {

devices::Inventory find_gpus() {
  if (!VIME_DRIVES_GPUS) {
    return {{}, "this vime was built without CUDA or with a LibTorch that has none (configure with --preset cuda)"};
  }
  return devices::find_gpus();
}

}  // namespace vime::app
