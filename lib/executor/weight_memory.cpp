#include "executor/weight_memory.hpp"

#include "executor/pages.hpp"
#include "gpu/device.hpp"
#include "gpu/pinned_memory.hpp"
#include "gpu/reserved_memory.hpp"

namespace vime::executor {
namespace {

class HostWeights final : public WeightMemory {
 public:
  explicit HostWeights(uint64_t bytes) : pages_(bytes) {}
  std::byte* data() const override { return pages_.data(); }
  void sleep(int level) override {
    if (level >= 2) pages_.drop();
  }
  // Pages that were dropped come back as zeros when they are written.
  void wake() override {}

 private:
  Pages pages_;
};

class GpuWeights final : public WeightMemory {
 public:
  explicit GpuWeights(uint64_t bytes) : bytes_(bytes), memory_(bytes) { memory_.commit(); }
  std::byte* data() const override { return memory_.data(); }
  void sleep(int level) override {
    if (!memory_.committed()) return;
    gpu::synchronize();
    if (level < 2) {
      // Pinning takes longer than the copy, so what is pinned stays for the next time.
      if (!aside_) aside_ = std::make_unique<gpu::PinnedMemory>(bytes_);
      gpu::copy_memory(aside_->data(), memory_.data(), bytes_);
    }
    set_aside_ = level < 2;
    memory_.release();
  }
  void wake() override {
    if (memory_.committed()) return;
    memory_.commit();
    if (set_aside_) gpu::copy_memory(memory_.data(), aside_->data(), bytes_);
    set_aside_ = false;
  }

 private:
  uint64_t bytes_;
  gpu::ReservedMemory memory_;
  std::unique_ptr<gpu::PinnedMemory> aside_;
  bool set_aside_ = false;
};

}  // namespace

std::unique_ptr<WeightMemory> make_host_weights(uint64_t bytes) {
  return std::make_unique<HostWeights>(bytes);
}

std::unique_ptr<WeightMemory> make_gpu_weights(uint64_t bytes) {
  return std::make_unique<GpuWeights>(bytes);
}

}  // namespace vime::executor
