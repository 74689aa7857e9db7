#include "model/checkpoint.hpp"

#include <torch/utils.h>
#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/strings.hpp"

namespace vime::model {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// All tensors of a checkpoint, whichever file each lies in.
class Checkpoint {
 public:
  explicit Checkpoint(const fs::path& dir) : dir_(dir) {
    if (fs::exists(dir / kSingleFile)) {
      const tensor::SafetensorsFile& file = open(kSingleFile);
      for (const auto& view : file.tensors()) file_of_[view.info.name] = kSingleFile;
    } else if (fs::exists(dir / kIndexFile)) {
      read_index();
    } else {
      throw Error(ErrorKind::refused, dir.string() + ": there is neither " + kSingleFile + " nor " + kIndexFile);
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, file] : file_of_) names.push_back(name);
    return names;
  }
  bool contains(const std::string& name) const { return file_of_.contains(name); }
  const tensor::TensorView& find(const std::string& name) { return open(file_of_.at(name)).find(name); }

 private:
  void read_index() {
    const std::string where = (dir_ / kIndexFile).string();
    const Json index = parse_json(read_file(dir_ / kIndexFile), where, ErrorKind::refused);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      throw Error(ErrorKind::refused, where + ": \"weight_map\" is missing or not an object");
    }
    for (const auto& [name, file] : index["weight_map"].items()) {
      // A path would leave the folder.
      if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
        throw Error(ErrorKind::refused, where + ": \"" + name + "\": expected a file name, found " + file.dump());
      }
      file_of_[name] = file.get<std::string>();
    }
  }
  const tensor::SafetensorsFile& open(const std::string& file) {
    const auto found = files_.find(file);
    if (found != files_.end()) return found->second;
    return files_.emplace(file, tensor::SafetensorsFile(dir_ / file)).first->second;
  }

  fs::path dir_;
  std::map<std::string, std::string> file_of_;
  std::map<std::string, tensor::SafetensorsFile> files_;
};

// Old Llama checkpoints carry rotary tables, tied ones sometimes a copy of the embeddings as head: both follow from the
// rest.
bool is_redundant(const std::string& name, const arch::ModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tie_word_embeddings && name == "lm_head.weight");
}

std::string some_of(const std::vector<std::string>& names) {
  std::vector<std::string> first(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(names.size(), 5)));
  const std::string more = names.size() > 5 ? " and " + std::to_string(names.size() - 5) + " more" : "";
  return join(first, ", ") + more;
}

void check_names(const Decoder& decoder, const Checkpoint& checkpoint, const fs::path& dir) {
  std::set<std::string> wanted;
  std::vector<std::string> missing;
  // Of the whole model: what is wrong elsewhere is wrong for every rank.
  for (const arch::Parameter& parameter : arch::parameters(decoder.config(), tensor::DType::f32)) {
    wanted.insert(parameter.full.name);
    if (!checkpoint.contains(parameter.full.name)) missing.push_back(parameter.full.name);
  }
  std::vector<std::string> surplus;
  for (const std::string& name : checkpoint.names()) {
    if (!wanted.contains(name) && !is_redundant(name, decoder.config())) surplus.push_back(name);
  }
  if (!missing.empty()) throw Error(ErrorKind::refused, dir.string() + ": tensors are missing: " + some_of(missing));
  if (!surplus.empty()) {
    throw Error(ErrorKind::refused,
                dir.string() + ": the model described by config.json has no place for: " + some_of(surplus));
  }
}

void load_one(const tensor::TensorView& view, const arch::ArenaEntry& entry, torch::Tensor& value,
              const fs::path& dir) {
  const tensor::TensorInfo& info = view.info;
  if (info.shape != entry.parameter.full.shape) {
    throw Error(ErrorKind::refused, dir.string() + ": " + info.name + ": expected shape " +
                                        tensor::shape_text(entry.parameter.full.shape) + ", found " +
                                        tensor::shape_text(info.shape));
  }
  if (info.dtype != tensor::DType::f32 && info.dtype != tensor::DType::bf16 && info.dtype != tensor::DType::f16 &&
      info.dtype != tensor::DType::f64) {
    throw Error(ErrorKind::refused, dir.string() + ": " + info.name + ": expected floating-point weights, found " +
                                        tensor::dtype_name(info.dtype));
  }
  // The copy is aligned whatever the file is, and only as large as this rank's part.
  const auto options = torch::TensorOptions().dtype(scalar_type(info.dtype));
  torch::Tensor part = torch::empty(entry.shard.shape, options);
  if (part.numel() == 0) return;
  arch::copy_shard(view.data, info, entry.shard, static_cast<std::byte*>(part.data_ptr()));
  value.copy_(part);
}

std::vector<std::vector<tensor::TensorInfo>> split_into_files(const arch::ModelConfig& config, tensor::DType dtype,
                                                              uint64_t file_bytes) {
  std::vector<std::vector<tensor::TensorInfo>> files(1);
  uint64_t used = 0;
  for (const arch::Parameter& parameter : arch::parameters(config, dtype)) {
    if (!files.back().empty() && used + parameter.full.bytes() > file_bytes) {
      files.emplace_back();
      used = 0;
    }
    used += parameter.full.bytes();
    files.back().push_back(parameter.full);
  }
  return files;
}

std::string file_name(std::size_t index, std::size_t count) {
  if (count == 1) return kSingleFile;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

}  // namespace

void load_weights(Decoder& decoder, const fs::path& model_dir) {
  const torch::NoGradGuard no_grad;
  Checkpoint checkpoint(model_dir);
  check_names(decoder, checkpoint, model_dir);
  for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
    Decoder::Named& parameter = decoder.parameters()[i];
    load_one(checkpoint.find(parameter.name), decoder.layout().entries[i], parameter.value, model_dir);
  }
}

CheckpointWriter::CheckpointWriter(const arch::ModelConfig& config, tensor::DType dtype, const fs::path& model_dir,
                                   uint64_t file_bytes)
    : config_(config), dtype_(dtype), dir_(model_dir), files_(split_into_files(config, dtype, file_bytes)) {
  make_directories(dir_);
  open_next();
}

void CheckpointWriter::open_next() {
  file_ = std::make_unique<tensor::SafetensorsWriter>(dir_ / file_name(next_file_, files_.size()), files_[next_file_],
                                                      std::map<std::string, std::string>{{"format", "pt"}});
}

void CheckpointWriter::append(const std::byte* tensor, uint64_t bytes) {
  VIME_CHECK(next_file_ < files_.size() && bytes == files_[next_file_][next_tensor_].bytes(),
             dir_.string() + ": the tensors come in another order");
  file_->append(tensor, bytes);
  if (++next_tensor_ < files_[next_file_].size()) return;
  file_->finish();
  next_tensor_ = 0;
  if (++next_file_ < files_.size()) open_next();
}

void CheckpointWriter::finish() {
  VIME_CHECK(next_file_ == files_.size(), dir_.string() + ": tensors are missing");
  if (files_.size() > 1) {
    Json weight_map = Json::object();
    uint64_t total = 0;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      for (const tensor::TensorInfo& info : files_[i]) {
        weight_map[info.name] = file_name(i, files_.size());
        total += info.bytes();
      }
    }
    const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    write_file_atomic(dir_ / kIndexFile, index.dump(2) + "\n");
    fs::remove(dir_ / kSingleFile);  // of an earlier save into this folder: it would win over the index
  }
  write_file_atomic(dir_ / "config.json", arch::config_json(config_, tensor::dtype_name(dtype_)).dump(2) + "\n");
}

void save_weights(const Decoder& decoder, const fs::path& model_dir, uint64_t file_bytes) {
  CheckpointWriter writer(decoder.config(), decoder.layout().entries.front().parameter.full.dtype, model_dir,
                          file_bytes);
  for (std::size_t i = 0; i < decoder.parameters().size(); ++i) {
    VIME_CHECK(decoder.layout().entries[i].shard.shape == decoder.layout().entries[i].parameter.full.shape,
               "save_weights needs whole tensors, of one rank");
    const torch::Tensor host = decoder.parameters()[i].value.detach().cpu();
    writer.append(static_cast<const std::byte*>(host.data_ptr()), decoder.layout().entries[i].bytes);
  }
  writer.finish();
}

}  // namespace vime::model
