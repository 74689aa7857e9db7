#include "loop/checkpoint.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "loop/run_directory.hpp"

namespace vime::loop {
namespace {

constexpr int kFormat = 1;
constexpr const char* kFile = "loop.json";

Json files_of(const fs::path& folder) {
  std::vector<std::pair<std::string, uint64_t>> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == kFile) continue;
    files.emplace_back(entry.path().lexically_relative(folder).string(), entry.file_size());
  }
  std::sort(files.begin(), files.end());
  Json list = Json::array();
  for (const auto& [name, bytes] : files) list.push_back({{"name", name}, {"bytes", bytes}});
  return list;
}

// JSON has no NaN; null stands for one.
Json without_nonfinite(const Json& line) {
  Json result = line;
  for (auto& [name, value] : result.items()) {
    if (value.is_number_float() && !std::isfinite(value.get<double>())) value = nullptr;
  }
  return result;
}

Json with_nonfinite(const Json& line) {
  Json result = line;
  for (auto& [name, value] : result.items()) {
    if (value.is_null()) value = std::nan("");
  }
  return result;
}

void require_files(const fs::path& folder, const Json& list, const std::string& where) {
  for (const Json& file : list) {
    const std::string name = json_string(file, "name", where);
    const int64_t expected = json_int(file, "bytes", where);
    std::error_code error;
    const auto found = fs::file_size(folder / name, error);
    if (error) throw Error(ErrorKind::refused, (folder / name).string() + ": " + error.message());
    if (static_cast<int64_t>(found) != expected) {
      throw Error(ErrorKind::refused, (folder / name).string() + ": expected " + std::to_string(expected) +
                                          " bytes, found " + std::to_string(found));
    }
  }
}

}  // namespace

void write_loop_state(const fs::path& folder, const std::string& run_id, const LoopState& state,
                      const Identity& identity) {
  const Json json = {{"format", kFormat},
                     {"run_id", run_id},
                     {"step", state.step},
                     {"optimizer_steps", state.optimizer_steps},
                     {"weight_version", state.weight_version},
                     {"data", {{"epoch", state.data.epoch}, {"offset", state.data.offset}}},
                     {"next_sample", state.next_sample},
                     {"next_group", state.next_group},
                     {"line", without_nonfinite(state.line)},
                     {"seed", identity.seed},
                     {"data_fingerprint", identity.data},
                     {"model", identity.model},
                     {"loss_type", identity.loss_type},
                     {"optimizer", identity.optimizer},
                     {"start_fingerprint", identity.start},
                     {"files", files_of(folder)}};
  write_file_atomic(folder / kFile, json.dump(2) + "\n");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) sync_directory(entry.path());
  }
}

Checkpoint read_checkpoint(const fs::path& folder) {
  const std::string where = (folder / kFile).string();
  const Json json = parse_json(read_file(folder / kFile), where, ErrorKind::refused);
  const int64_t format = json_int(json, "format", where);
  if (format != kFormat) {
    throw Error(ErrorKind::refused,
                where + ": expected format " + std::to_string(kFormat) + ", found " + std::to_string(format));
  }
  require_files(folder, json_member(json, "files", where), where);
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  checkpoint.run_id = json_string(json, "run_id", where);
  LoopState& state = checkpoint.state;
  state.step = json_int(json, "step", where);
  state.optimizer_steps = json_int(json, "optimizer_steps", where);
  state.weight_version = json_int(json, "weight_version", where);
  const Json& data = json_member(json, "data", where);
  state.data = {json_int(data, "epoch", where), json_int(data, "offset", where)};
  state.next_sample = json_int(json, "next_sample", where);
  state.next_group = json_int(json, "next_group", where);
  state.line = with_nonfinite(json_member(json, "line", where));
  checkpoint.identity = {json_int(json, "seed", where),
                         json_string(json, "data_fingerprint", where),
                         json_member(json, "model", where),
                         json_string(json, "loss_type", where),
                         json.value("optimizer", "adam"),  // checkpoints were written before there was another
                         json_string(json, "start_fingerprint", where)};
  return checkpoint;
}

std::optional<Checkpoint> newest_checkpoint(const fs::path& run_dir, std::vector<std::string>& notes) {
  for (const fs::path& folder : finished_checkpoints(run_dir)) {
    try {
      return read_checkpoint(folder);
    } catch (const Error& error) {
      notes.push_back("checkpoint " + folder.filename().string() + " is torn and passed over: " + error.message());
    }
  }
  return std::nullopt;
}

void require_same(const Checkpoint& checkpoint, const Identity& now) {
  const auto refuse = [&](const std::string& what, const std::string& cure) {
    throw Error(ErrorKind::refused, "cannot go on from " + checkpoint.folder.string() + ": " + what, cure);
  };
  const Identity& then = checkpoint.identity;
  if (then.seed != now.seed) {
    refuse("its seed is " + std::to_string(then.seed) + ", now it is " + std::to_string(now.seed) +
               "; samples and data order would not be those of one run",
           "set seed: " + std::to_string(then.seed) + ", or begin a new run");
  }
  if (then.data != now.data) {
    refuse("the training prompts or their order have changed (fingerprint " + then.data + ", now " + now.data +
               "), so its place in them means nothing",
           "restore the data set, data.* and rollout.rollout_max_prompt_len, or begin a new run from its model");
  }
  if (then.loss_type != now.loss_type) {
    refuse("its loss_type is " + then.loss_type + ", now it is " + now.loss_type, "begin a new run from its model");
  }
  if (then.optimizer != now.optimizer) {
    refuse(
        "its optimizer is " + then.optimizer + ", now it is " + now.optimizer + ", which knows no state of the other",
        "set trainer.optimizer: " + then.optimizer + ", or begin a new run from its model");
  }
  if (then.start != now.start) {
    refuse("the weights that training began with, which are the reference model too, have changed",
           "restore them, or begin a new run with model.ref_load");
  }
  if (then.model == now.model) return;
  for (const auto& [name, value] : now.model.items()) {
    const Json before = then.model.value(name, Json());
    if (before != value) refuse("the model's " + name + " was " + before.dump() + ", now it is " + value.dump(), "");
  }
  refuse("the model's config has changed", "");
}

void require_space(const fs::path& folder, uint64_t needed, int64_t step) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= needed) return;  // a disk that does not say shows its limit when it is written to
  throw Error(ErrorKind::exhausted,
              "the checkpoint of step " + std::to_string(step) + " needs " + format_bytes(needed) + " in " +
                  folder.string() + ", where " + format_bytes(space.available) + " are free",
              "make room or lower checkpoint.keep_last, then go on with --resume");
}

}  // namespace vime::loop
