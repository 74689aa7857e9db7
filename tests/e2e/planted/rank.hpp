// Trainer ranks that follow a wrong rule of parallel training or of the push. Everything else about them is real.
#pragma once

#include <memory>
#include <string>

#include "trainer/rank.hpp"

namespace vime::planted {

// fault:
//   missing_all_reduce   a tensor-parallel rank takes its own partial sum for the sum over all ranks
//   sign_flip            the last tensor-parallel rank has the gradient of its part of one matrix negated
//   swapped_gate_up      the last tensor-parallel rank has gate and up exchanged
//   cp_unscaled          gradients are not divided by the context-parallel size where something else multiplied by it
//   cp_wrong_token       under context parallelism each token gets the reward of the one before
//   tied_twice           gradients of tied embeddings are summed over first and last stage twice
//   dropped_stage        the last stage's tensors are not pushed
//   leader_by_tp_rank    every rank with tensor-parallel rank 0 leads its slot
//   handles_over_tp      handles are gathered over the tensor-parallel group and not over the slot
//   version_never_set    pushes do not carry their version
// Any other fault: a rank without one.
std::unique_ptr<trainer::TrainerRank> make_rank(trainer::RankOptions options, const std::string& fault);

}  // namespace vime::planted
