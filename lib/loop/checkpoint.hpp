// Checkpoints as the driver sees them: where the loop stands (loop.json), beside the model (model/) and the trainer's
// state (trainer/), which rank 0 writes. A checkpoint is written aside, fsynced and renamed, so one that has its name
// is whole unless the disk lost something; that is looked for before it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files.hpp"
#include "base/json.hpp"
#include "data/data_source.hpp"

namespace vime::loop {

// Where the loop stands after the training of a step, before its push and evaluation. Together with the ranks' state it
// decides everything that follows: random numbers are functions of the seed and these counters.
struct LoopState {
  int64_t step = 0;  // rollouts trained on
  int64_t optimizer_steps = 0;
  int64_t weight_version = 0;  // committed before this step's push
  data::DataPosition data;     // of the next prompt
  int64_t next_sample = 0;     // numbers of the next sample and the next group of the run
  int64_t next_group = 0;
  Json line = Json::object();  // the step's metrics so far
};

// What must not differ between a checkpoint and the run that goes on from it.
struct Identity {
  int64_t seed = 0;
  std::string data;  // fingerprint of the prompts and their order
  Json model;        // config.json
  std::string loss_type;
  std::string optimizer;
  std::string start;  // fingerprint of the weights that training began with, where they are the reference model too
  bool operator==(const Identity&) const = default;
};

struct Checkpoint {
  fs::path folder;
  std::string run_id;
  LoopState state;
  Identity identity;
};

// Writes <folder>/loop.json, with the names and sizes of all other files of the folder. Last of a checkpoint's files.
void write_loop_state(const fs::path& folder, const std::string& run_id, const LoopState& state,
                      const Identity& identity);

// Error{refused} says what is torn: a file that is missing or has another size, a loop.json that cannot be read.
Checkpoint read_checkpoint(const fs::path& folder);

// The newest whole checkpoint of a run folder; torn ones are passed over, each with a sentence in `notes`.
std::optional<Checkpoint> newest_checkpoint(const fs::path& run_dir, std::vector<std::string>& notes);

// Error{refused} naming what has changed since, and the cure.
void require_same(const Checkpoint& checkpoint, const Identity& now);

// Error{exhausted} when the disk of `folder` has less than `needed` bytes free.
void require_space(const fs::path& folder, uint64_t needed, int64_t step);

}  // namespace vime::loop
