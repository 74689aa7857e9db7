// The worker module with faults that only a self-check can see: the engine's front and workers are the real ones, and
// what lies between them lies. VIME_PLANTED names the fault; rank.hpp has those of trainer ranks.
//   stale_weights   from the second push on the workers keep the old weights, while the engine takes the version
//   one_stale_engine   the same, of the engine whose first device is the node's third
//   lost_update     the last tensor of every update is lost on the way
//   logprob_gap     every log-prob is 0.001 too high
//   wrong_tensor    one parameter of every push of whole tensors is replaced by the values of another of the same shape
#include <cstdlib>
#include <string>
#include <utility>

#include "placement/placement.hpp"
#include "rank.hpp"
#include "worker_main.hpp"

namespace {

using namespace vime;

class PlantedExecutor final : public engine::Executor {
 public:
  PlantedExecutor(std::unique_ptr<engine::Executor> inner, std::string fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  int world_size() const override { return inner_->world_size(); }
  int64_t max_slots() const override { return inner_->max_slots(); }
  int64_t max_model_len() const override { return inner_->max_model_len(); }
  int64_t max_batch_rows() const override { return inner_->max_batch_rows(); }
  std::vector<engine::Sampled> step(const engine::Batch& batch) override {
    std::vector<engine::Sampled> sampled = inner_->step(batch);
    if (fault_ == "logprob_gap") {
      for (engine::Sampled& sample : sampled) sample.logprob -= 0.001f;
    }
    return sampled;
  }
  void init_transfer(const Json& init_info) override { inner_->init_transfer(init_info); }
  void start_update() override {
    ++pushes_;
    if (!stale()) inner_->start_update();
  }
  void update(const Json& update_info) override {
    if (stale()) return;
    Json info = update_info;
    if (fault_ == "lost_update") lose_tensor(info);
    if (fault_ == "wrong_tensor") exchange_tensors(info);
    inner_->update(info);
  }
  void finish_update() override {
    if (!stale()) inner_->finish_update();
  }
  std::map<std::string, uint64_t> checksums() override { return inner_->checksums(); }
  void reload(const std::string& model_dir) override { inner_->reload(model_dir); }
  void sleep(int level) override { inner_->sleep(level); }
  void wake(bool weights, bool kv_cache) override { inner_->wake(weights, kv_cache); }

 private:
  bool stale() const { return fault_ == "stale_weights" && pushes_ >= 2; }
  // The key that stands for the lists would give the loss away; the first push, which has the lists, fails by it.
  static void lose_tensor(Json& info) {
    info.erase("manifest");
    for (const char* list : {"names", "dtype_names", "shapes", "tensor_offsets"})
      info[list].erase(info[list].size() - 1);
  }
  // Without the key that stands for the lists, which would give the exchange away; it comes alone from the second push
  // on.
  void exchange_tensors(Json& info) {
    info.erase("manifest");
    if (info.contains("names")) {
      swap_equal_shapes(info);
      for (const char* list : {"names", "dtype_names", "shapes", "tensor_offsets"}) lists_[list] = info.at(list);
    } else {
      info.update(lists_);
    }
  }
  // Exchanges the places of the first two tensors of equal shape.
  static void swap_equal_shapes(Json& info) {
    for (size_t i = 0; i < info["names"].size(); ++i) {
      for (size_t j = i + 1; j < info["names"].size(); ++j) {
        if (info["shapes"][i] != info["shapes"][j] || info["shapes"][i].size() < 2) continue;
        std::swap(info["tensor_offsets"][i], info["tensor_offsets"][j]);
        return;
      }
    }
  }

  std::unique_ptr<engine::Executor> inner_;
  std::string fault_;
  Json lists_ = Json::object();
  int pushes_ = 0;
};

// "one_stale_engine" is the fault of one engine only.
std::string fault_of_engine(const std::string& fault, const Json& options) {
  if (fault != "one_stale_engine") return fault;
  const std::string third = placement::cpu_device_uuid(options.at("run_id").get<std::string>(), 0, 2);
  return options.at("device_uuids").at(0) == third ? "stale_weights" : "";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int vime_worker_main(const char* role, const char* options, int argc,
                                                                       char** argv) {
  const char* named = std::getenv("VIME_PLANTED");
  const std::string fault = named == nullptr ? "" : named;
  const std::string of_engine =
      std::string(role) == "engine" ? fault_of_engine(fault, parse_json(options, "engine options")) : "";
  return worker_main(
      role, options, argc, argv,
      [of_engine](std::unique_ptr<engine::Executor> inner) {
        return std::make_unique<PlantedExecutor>(std::move(inner), of_engine);
      },
      [fault](trainer::RankOptions rank) { return planted::make_rank(std::move(rank), fault); });
}
