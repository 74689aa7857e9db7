#include "sweep/dump.hpp"

#include <cstring>
#include <set>

#include "base/error.hpp"
#include "tensor/safetensors.hpp"

namespace vime::sweep {
namespace {

using tensor::DType;

class DumpFile {
 public:
  DumpFile(const fs::path& path, std::string who) : file_(path), who_(std::move(who)) {}

  template <typename T>
  std::vector<T> take(const std::string& name, DType dtype, const tensor::Shape& shape) {
    if (!file_.contains(name)) fail(name + " is missing");
    const tensor::TensorView& view = file_.find(name);
    if (view.info.dtype != dtype || view.info.shape != shape) {
      fail(name + ": expected " + tensor::dtype_name(dtype) + " " + tensor::shape_text(shape) + ", found " +
           tensor::dtype_name(view.info.dtype) + " " + tensor::shape_text(view.info.shape));
    }
    taken_.insert(name);
    std::vector<T> values(static_cast<size_t>(tensor::element_count(shape)));
    if (!values.empty()) std::memcpy(values.data(), view.data, values.size() * sizeof(T));
    return values;
  }

  void require_nothing_else() const {
    for (const tensor::TensorView& view : file_.tensors()) {
      if (!taken_.contains(view.info.name)) fail(view.info.name + " does not belong on this rank");
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::check_failed, who_ + ": " + file_.path().string() + ": " + what);
  }

  tensor::SafetensorsFile file_;
  std::string who_;
  std::set<std::string> taken_;
};

}  // namespace

std::string rank_name(const placement::TrainerRank& place) {
  return "rank " + std::to_string(place.rank) + " (tp " + std::to_string(place.tp_rank) + ", pp " +
         std::to_string(place.pp_rank) + ", cp " + std::to_string(place.cp_rank) + ", dp " +
         std::to_string(place.dp_rank) + ")";
}

RankRecord read_rank_dump(const fs::path& folder, const arch::ModelConfig& config, const RankLayout& rank,
                          int64_t response_tokens) {
  const placement::TrainerRank& place = rank.place;
  DumpFile file(folder / ("rank_" + std::to_string(place.rank) + ".safetensors"), rank_name(place));
  RankRecord record;
  record.place = place;
  const arch::Stage stage = arch::stage_of(config, place.pp_rank, rank.layout.pp);
  for (arch::ArenaEntry& entry : arch::arena_layout(config, DType::f32, place.tp_rank, rank.layout.tp, stage).entries) {
    ShardRecord shard;
    shard.name = entry.parameter.full.name;
    shard.full_shape = entry.parameter.full.shape;
    shard.gradient = file.take<float>("grad." + shard.name, DType::f32, entry.shard.shape);
    shard.weight = file.take<float>("weight." + shard.name, DType::f32, entry.shard.shape);
    shard.shard = std::move(entry.shard);
    record.shards.push_back(std::move(shard));
  }
  record.logprobs = file.take<double>("logprobs", DType::f64, {response_tokens});
  record.logprobs_after = file.take<double>("logprobs_after", DType::f64, {response_tokens});
  file.require_nothing_else();
  return record;
}

}  // namespace vime::sweep
