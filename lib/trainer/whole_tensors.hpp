// A layout's shards brought into checkpoint form: whole tensors under their Hugging Face names, on every rank. One
// thread; gathering is collective over the tensor-parallel ranks and the stages of a replica, and every replica gathers
// for itself.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "arch/parameters.hpp"
#include "channels/bucket_shards.hpp"
#include "model/rank_group.hpp"
#include "weights/bucket.hpp"

namespace vime::trainer {

class WholeTensors {
 public:
  WholeTensors(const arch::ModelConfig& config, tensor::DType dtype, std::shared_ptr<model::RankGroup> tp,
               std::shared_ptr<model::RankGroup> stages);

  // Whether a rank's arena lacks anything: otherwise its arena holds the tensors already.
  bool needed() const { return tp_->size() > 1 || stages_->size() > 1; }
  // All parameters of the model, in checkpoint order.
  const std::vector<tensor::TensorInfo>& tensors() const { return tensors_; }
  // Fills the bucket's tensors, each at its offset of `place`. arena: laid out as this rank's weights. The bucket's
  // tensors are consecutive in checkpoint order, and the same on all ranks.
  void gather(const weights::Bucket& bucket, const std::byte* arena, std::byte* place);
  uint64_t scratch_bytes() const { return scratch_.capacity(); }

 private:
  void gather_stage(const weights::Bucket& bucket, const std::byte* arena, std::byte* place);
  void exchange_stages(const weights::Bucket& bucket, std::byte* place) const;

  std::shared_ptr<model::RankGroup> tp_, stages_;
  std::vector<tensor::TensorInfo> tensors_;
  channels::BucketShards shards_;
  std::vector<std::byte> scratch_;  // the shards of a bucket, rank after rank
};

}  // namespace vime::trainer
