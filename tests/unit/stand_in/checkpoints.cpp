#include "checkpoints.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/safetensors.hpp"

namespace vime::stand_in {

Checkpoint read_checkpoint(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("model") && entry.path().extension() == ".safetensors")
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Checkpoint checkpoint;
  for (const fs::path& path : files) {
    const tensor::SafetensorsFile file(path);
    for (const tensor::TensorView& view : file.tensors())
      checkpoint.push_back({view.info, {view.data, view.data + view.info.bytes()}});
  }
  return checkpoint;
}

Checkpoint changed(Checkpoint checkpoint) {
  for (Tensor& tensor : checkpoint) {
    for (std::size_t at = 0; at + sizeof(float) <= tensor.bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + at, sizeof value);
      value += 0.1f * std::sin(0.7f * static_cast<float>(at) + static_cast<float>(tensor.info.name.size()));
      std::memcpy(tensor.bytes.data() + at, &value, sizeof value);
    }
  }
  return checkpoint;
}

void write_checkpoint(const Checkpoint& checkpoint, const fs::path& folder) {
  make_directories(folder);
  std::vector<tensor::TensorView> views;
  for (const Tensor& tensor : checkpoint) views.push_back({tensor.info, tensor.bytes.data()});
  tensor::write_safetensors(folder / "model.safetensors", views);
  fs::copy_file(fs::path(VIME_TEST_DATA) / "models/qwen3/config.json", folder / "config.json",
                fs::copy_options::overwrite_existing);
}

}  // namespace vime::stand_in
