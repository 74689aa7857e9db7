// The legs of a parallel sweep: every layout TP x PP x CP x DP of the asked sizes on each number of devices, once for
// each way of averaging the loss. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace vime::sweep {

enum class Loss { sample_mean, token_mean };
const char* loss_name(Loss loss);  // "sample_mean", "token_mean"

struct Leg {
  int num_gpus = 1;
  int tp = 1, pp = 1, cp = 1, dp = 1;
  Loss loss = Loss::sample_mean;
  bool operator==(const Leg&) const = default;
};

std::string leg_name(const Leg& leg);    // "tp 2 pp 2 cp 1 dp 2 (8 devices, token mean)"
std::string leg_folder(const Leg& leg);  // "8gpus-tp2-pp2-cp1-dp2-token_mean"

// A single process, which every leg with the same loss is held against.
inline Leg baseline_leg(Loss loss) {
  return {1, 1, 1, 1, 1, loss};
}

struct LegSizes {
  std::vector<int> num_gpus{8, 4, 2};
  std::vector<int> tp{1, 2, 4, 8};
  std::vector<int> pp{1, 2, 4};
  std::vector<int> cp{1, 2, 4, 8};
};

// Holds a leg to what is given; everything else may be anything.
struct LegFilter {
  std::optional<int> num_gpus, tp, pp, cp, dp;
  std::optional<Loss> loss;
  bool takes(const Leg& leg) const;
};

// Devices of each of its engines: those asked for, or the only one.
inline int engine_devices(const Leg& leg, int gpus_per_engine) {
  return leg.num_gpus == 1 ? 1 : gpus_per_engine;
}

// Of one number: a slip of the keyboard should not start a machine's worth of processes.
inline constexpr int kMaxSize = 4096;
// "2". `option` names it in errors: Error{refused} for what is no number from 1 to `most`.
int parse_count(const std::string& option, const std::string& text, int most = kMaxSize);
// "8,4,2". `option` names it in errors: Error{refused} for what is no list of different numbers of at least 1.
std::vector<int> parse_sizes(const std::string& option, const std::string& text);
// "tp=2,pp=2,loss=token_mean"; "" takes every leg. Error{refused} for an unknown or doubled name and a bad value.
LegFilter parse_only(const std::string& text);

// By number of devices, TP, PP and CP in the order given, sample mean before token mean; DP is what is left of the
// devices, and layouts that do not divide them are no legs. Error{refused} for a number of devices that no layout
// divides, and for a filter that takes no leg.
std::vector<Leg> make_legs(const LegSizes& sizes, const LegFilter& only);

}  // namespace vime::sweep
