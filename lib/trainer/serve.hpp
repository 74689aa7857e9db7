// A trainer rank's process: HTTP control routes on loopback, guarded by the run token, and one thread that computes.
// Commands run one after another in the order of their arrival; each is answered when it has been done.
//   GET  /health                       200 once the weights are there
//   POST /setup  {"meeting_host", "meeting_port"}                        {}
//   POST /train  {"batch": path, "probe": null or one}               {"steps": [figures], "memory": figures of memory,
//                                      "answer"}: the probe's; both as in rollout/step_probe.hpp
//   POST /prepare_push {}                                            {"seconds"}: before the engines are paused
//   POST /push   {"version", "engines": [{"id","url","token","init"}], "checksums": bool}
//                                      {"results": [{"engine", "error", "start_s", "update_s", "finish_s"}],
//                                      "prepare_s", "extra_bytes", "replica",
//                                      "parts": [{"name","copy","sum": hex}]}
//   POST /offload {}, POST /onload {}                                figures of memory
//                                      between the two only /push, /offload and /onload
//   POST /save   {"dir"}                                             {}
//   POST /checkpoint_bytes {}                                        {"bytes"}
// Figures of memory: {"arena_bytes", "used_bytes", "peak_bytes"}, as TrainerRank::MemoryFigures.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "trainer/rank.hpp"

namespace vime::trainer {

struct TrainerOptions {
  std::string run_dir;  // spec.yaml in it says what to train
  std::string run_id;
  std::string token;  // from the environment (VIME_RUN_TOKEN)
  int rank = 0;
  std::string checkpoint;  // folder that training goes on from; empty: from the start
};

TrainerOptions trainer_options(const Json& json);

// Makes the rank that is served; tests make one with a planted fault.
using MakeRank = std::function<std::unique_ptr<TrainerRank>(RankOptions)>;

// Serves until SIGTERM. Returns the exit status.
int serve_trainer(const TrainerOptions& options, const MakeRank& make_rank = {});

}  // namespace vime::trainer
