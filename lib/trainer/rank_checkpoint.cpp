// A rank's part in checkpoints: whole tensors, which rank 0 writes as they come, a bucket at a time.
#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "model/checkpoint.hpp"
#include "tensor/safetensors.hpp"
#include "trainer/rank.hpp"
#include "weights/checksum.hpp"
#include "weights/version.hpp"

namespace vime::trainer {
namespace {

// Inside a checkpoint.
constexpr const char* kModelFolder = "model";
constexpr const char* kTrainerFolder = "trainer";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kChecksumFile = "checksums.json";

// Gathers every tensor of an arena in checkpoint order, in buckets, and hands each to `take`. Collective.
void for_each_whole(WholeTensors& whole, const arch::ArenaLayout& layout, uint64_t buffer_bytes, const std::byte* arena,
                    const std::function<void(const tensor::TensorView&)>& take) {
  if (!whole.needed()) {
    for (const arch::ArenaEntry& entry : layout.entries) take({entry.parameter.full, arena + entry.offset});
    return;
  }
  std::vector<std::byte> place;
  for (const weights::Bucket& bucket : weights::pack_buckets(whole.tensors(), buffer_bytes)) {
    place.resize(std::max<size_t>(place.size(), bucket.bytes));
    whole.gather(bucket, arena, place.data());
    for (const weights::BucketEntry& entry : bucket.entries) take({entry.info, place.data() + entry.offset});
  }
}

std::map<std::string, uint64_t> saved_checksums(const fs::path& file) {
  return weights::parse_checksums(parse_json(read_file(file), file.string(), ErrorKind::refused), file.string());
}

}  // namespace

// The weights that training begins with, and those of the reference model.
void TrainerRank::load_weights() {
  const auto fill = [&](model::Decoder& decoder, const std::string& dir) {
    if (dir.empty()) {
      model::init_weights(decoder, options_.seed);
    } else {
      model::load_weights(decoder, dir);
    }
  };
  if (options_.with_reference) {
    reference_arena_ = make_arena(arena_->bytes());
    reference_ = make_decoder(reference_arena_->data());
    fill(*reference_, options_.reference_dir.empty() ? options_.model_dir : options_.reference_dir);
  }
  if (options_.checkpoint_dir.empty()) {
    fill(*decoder_, options_.model_dir);
  } else {
    check_checkpoint();
    fill(*decoder_, (fs::path(options_.checkpoint_dir) / kModelFolder).string());
  }
}

// Holds the files against the checksums that were saved with them; the ranks share the tensors out.
void TrainerRank::check_checkpoint() const {
  const fs::path folder = options_.checkpoint_dir;
  const std::map<std::string, uint64_t> saved = saved_checksums(folder / kTrainerFolder / kChecksumFile);
  std::map<std::string, uint64_t> expected, found;
  size_t number = 0;
  std::set<std::string> seen;
  const auto look = [&](const tensor::TensorView& view) {
    seen.insert(view.info.name);
    const auto known = saved.find(view.info.name);
    if (known != saved.end() && number++ % options_.plan.ranks.size() != static_cast<size_t>(options_.rank)) return;
    if (known != saved.end()) expected.insert(*known);
    found[view.info.name] = weights::full_checksum(view);
  };
  std::vector<fs::path> files = {folder / kTrainerFolder / kOptimizerFile};
  for (const auto& entry : fs::directory_iterator(folder / kModelFolder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // the same order, and so the same shares, on every rank
  for (const fs::path& path : files) {
    const tensor::SafetensorsFile file(path);
    for (const tensor::TensorView& view : file.tensors()) look(view);
  }
  // A name that only one side has is a problem on every rank.
  for (const auto& [name, sum] : saved) {
    if (!seen.contains(name)) expected[name] = sum;
  }
  const std::vector<std::string> problems = weights::checksum_problems(expected, {{"what was read", found}});
  if (problems.empty()) return;
  throw Error(ErrorKind::refused,
              options_.checkpoint_dir + ": the contents are not those that were saved: " + join(problems, "; "),
              "remove this checkpoint to resume from an older one");
}

void TrainerRank::load_optimizer() {
  optimizer_->load(tensor::SafetensorsFile(fs::path(options_.checkpoint_dir) / kTrainerFolder / kOptimizerFile));
}

void TrainerRank::save(const std::string& dir) {
  std::map<std::string, uint64_t> sums = save_weights(fs::path(dir) / kModelFolder);
  sums.merge(save_state(dir));
  if (options_.rank != 0) return;
  Json json = Json::object();
  for (const auto& [name, sum] : sums) json[name] = hex(sum);
  write_file_atomic(fs::path(dir) / kTrainerFolder / kChecksumFile, Json({{"checksums", json}}).dump(1) + "\n");
}

// The layout of float32 shards, whatever the weights are.
arch::ArenaLayout TrainerRank::state_layout() const {
  const placement::Layout& layout = options_.plan.layout;
  return arch::arena_layout(options_.config, tensor::DType::f32, place().tp_rank, layout.tp,
                            arch::stage_of(options_.config, place().pp_rank, layout.pp));
}

// The optimizer's buffers lie as the weights' arena does, whose padding depends on the weights' type.
std::vector<std::byte> TrainerRank::in_state_layout(const torch::Tensor& flat) const {
  const torch::Tensor host = flat.to(torch::kCPU, torch::kFloat32).contiguous();
  const arch::ArenaLayout to = state_layout();
  const std::vector<arch::ArenaEntry>& from = decoder_->layout().entries;
  std::vector<std::byte> placed(to.total_bytes);
  for (size_t i = 0; i < from.size(); ++i) {
    const uint64_t begin = from[i].offset / tensor::element_bytes(options_.dtype) * sizeof(float);
    std::memcpy(placed.data() + to.entries[i].offset, static_cast<const std::byte*>(host.data_ptr()) + begin,
                to.entries[i].bytes);
  }
  return placed;
}

void TrainerRank::write_model(const std::string& folder) {
  save_weights(folder);
}

std::map<std::string, uint64_t> TrainerRank::save_weights(const fs::path& folder) {
  std::map<std::string, uint64_t> sums;
  if (!writes_checkpoints()) return sums;
  std::optional<model::CheckpointWriter> writer;
  if (options_.rank == 0) writer.emplace(options_.config, options_.dtype, folder);
  const torch::Tensor host = optimizer_->weights().cpu();
  for_each_whole(*whole_, decoder_->layout(), options_.buffer_bytes, static_cast<const std::byte*>(host.data_ptr()),
                 [&](const tensor::TensorView& tensor) {
                   if (!writer) return;
                   writer->append(tensor.data, tensor.info.bytes());
                   sums[tensor.info.name] = weights::full_checksum(tensor);
                 });
  if (writer) writer->finish();
  return sums;
}

std::map<std::string, uint64_t> TrainerRank::save_state(const std::string& dir) {
  std::map<std::string, uint64_t> sums;
  std::optional<tensor::SafetensorsWriter> writer;
  if (options_.rank == 0) {
    std::vector<tensor::TensorInfo> infos;
    for (const std::string& state : optimizer_->state_names()) {
      for (tensor::TensorInfo info : whole_state_->tensors()) {
        info.name = state + "." + info.name;
        infos.push_back(std::move(info));
      }
    }
    make_directories(fs::path(dir) / kTrainerFolder);
    writer.emplace(fs::path(dir) / kTrainerFolder / kOptimizerFile, infos, optimizer_->counters());
  }
  for (const std::string& state : optimizer_->state_names()) {
    const torch::Tensor flat = optimizer_->whole_state(state);
    if (!writes_checkpoints()) continue;
    const std::vector<std::byte> placed = in_state_layout(flat);
    for_each_whole(*whole_state_, state_layout(), options_.buffer_bytes, placed.data(),
                   [&](const tensor::TensorView& tensor) {
                     if (!writer) return;
                     writer->append(tensor.data, tensor.info.bytes());
                     sums[state + "." + tensor.info.name] = weights::full_checksum(tensor);
                   });
  }
  if (writer) writer->finish();
  return sums;
}

uint64_t TrainerRank::checkpoint_bytes() const {
  return arch::parameter_bytes(options_.config, options_.dtype) +
         optimizer_->state_names().size() * arch::parameter_bytes(options_.config, tensor::DType::f32);
}

}  // namespace vime::trainer
