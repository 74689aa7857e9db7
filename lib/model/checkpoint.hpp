// Weights in Hugging Face model folders: config.json and safetensors files.
#pragma once

#include <memory>
#include <vector>

#include "base/files.hpp"
#include "model/decoder.hpp"
#include "tensor/safetensors.hpp"

namespace vime::model {

// Fills the arena from <dir>'s safetensors (one file or an index of shards), converting the dtype. Missing, surplus or
// misshapen tensors: Error{refused}. Every rank reads its own part; not collective.
void load_weights(Decoder& decoder, const fs::path& model_dir);

// Writes config.json and whole tensors that come one after another in checkpoint order: model.safetensors, or files of
// at most `file_bytes` (a larger tensor has one of its own) with an index where they do not fit into one.
class CheckpointWriter {
 public:
  CheckpointWriter(const arch::ModelConfig& config, tensor::DType dtype, const fs::path& model_dir,
                   uint64_t file_bytes = uint64_t{5} << 30);
  void append(const std::byte* tensor, uint64_t bytes);  // the next tensor
  void finish();

 private:
  void open_next();

  arch::ModelConfig config_;
  tensor::DType dtype_;
  fs::path dir_;
  std::vector<std::vector<tensor::TensorInfo>> files_;
  size_t next_file_ = 0, next_tensor_ = 0;
  std::unique_ptr<tensor::SafetensorsWriter> file_;
};

// The whole model of one rank.
void save_weights(const Decoder& decoder, const fs::path& model_dir, uint64_t file_bytes = uint64_t{5} << 30);

}  // namespace vime::model
