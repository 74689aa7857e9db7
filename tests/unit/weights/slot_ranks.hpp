// What pushes are driven with in tests: threads that stand for the ranks of a slot, and a rank's weights.
#pragma once

#include <barrier>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "weights/checksum.hpp"
#include "weights/shared_arena.hpp"
#include "weights/slot_push.hpp"

namespace vime::weights {

inline std::string uuid_of(int device) {
  return "00000000-0000-0000-0000-00000000000" + std::to_string(device);
}

// Threads that stand for the ranks of a slot.
class ThreadSlot {
 public:
  explicit ThreadSlot(int size) : texts_(static_cast<size_t>(size)), barrier_(size) {}
  class Member final : public SlotGroup {
   public:
    Member(ThreadSlot& slot, int index) : slot_(slot), index_(index) {}
    std::vector<std::string> gather(const std::string& mine) override {
      slot_.texts_[static_cast<size_t>(index_)] = mine;
      slot_.barrier_.arrive_and_wait();
      std::vector<std::string> all = index_ == 0 ? slot_.texts_ : std::vector<std::string>{};
      slot_.barrier_.arrive_and_wait();
      ++gathers;
      return all;
    }
    void barrier() override {
      slot_.barrier_.arrive_and_wait();
      ++barriers;
    }
    int gathers = 0;
    int barriers = 0;

   private:
    ThreadSlot& slot_;
    int index_;
  };

 private:
  std::vector<std::string> texts_;
  std::barrier<> barrier_;
};

// One rank's weights: three tensors of mixed dtypes, the same on every rank that is made with the same key.
struct RankWeights {
  SharedArena arena{4096};
  std::vector<PlacedTensor> tensors = {{{"a", tensor::DType::f32, {5, 3}}, 0},
                                       {{"b", tensor::DType::bf16, {7}}, 64},
                                       {{"c", tensor::DType::f32, {11}}, 128}};

  explicit RankWeights(uint64_t key) {
    for (const PlacedTensor& tensor : tensors) {
      for (uint64_t i = 0; i < tensor.info.bytes(); ++i) {
        arena.data()[tensor.offset + i] = static_cast<std::byte>(mix_key(key, tensor.offset, i));
      }
    }
  }
  std::map<std::string, uint64_t> checksums() const {
    std::map<std::string, uint64_t> sums;
    for (const PlacedTensor& tensor : tensors)
      sums[tensor.info.name] = full_checksum({tensor.info, arena.data() + tensor.offset});
    return sums;
  }
  std::vector<tensor::TensorView> views() const {
    std::vector<tensor::TensorView> list;
    for (const PlacedTensor& tensor : tensors) list.push_back({tensor.info, arena.data() + tensor.offset});
    return list;
  }
  std::vector<tensor::TensorInfo> infos() const {
    std::vector<tensor::TensorInfo> list;
    for (const PlacedTensor& tensor : tensors) list.push_back(tensor.info);
    return list;
  }
};

constexpr uint64_t kBufferBytes = 50;  // three buckets: 60, 14 and 44 bytes

inline SlotPush make_push(placement::Slot slot, int rank, SlotGroup& group, EngineClient* engine, int64_t version,
                          Lifetime lifetime = Lifetime::bucket) {
  SlotPushOptions options;
  options.slot = slot;
  options.rank = rank;
  options.uuid = uuid_of(rank);
  options.group = &group;
  options.engine = engine;
  options.version = version;
  options.init_needed = version == 1;
  options.lifetime = lifetime;
  return SlotPush(std::move(options));
}

}  // namespace vime::weights
