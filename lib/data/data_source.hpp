// Hands out prompts, each exactly once per epoch. The order of epoch e is permutation(size, mix_key(seed, e)) of
// base/random.hpp, the data set's own order without shuffling: a pure function of (seed, epoch, number of prompts), so
// a position is two numbers and a resumed run reads on where it stopped. The prompts are moved in and held once; beside
// them there are 8 bytes a prompt. One thread calls; nothing blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "data/prompts.hpp"

namespace vime::data {

struct DataPosition {
  int64_t epoch = 0;
  int64_t offset = 0;  // prompts of this epoch already handed out, in [0, size)
  bool operator==(const DataPosition&) const = default;
};

class DataSource {
 public:
  // Error{refused} when there are no prompts. shuffle false: every epoch in the data set's own order.
  DataSource(std::vector<Prompt> prompts, uint64_t seed, bool shuffle);

  // The next n prompts. A batch that reaches the end of an epoch goes on into the next one; one larger than the data
  // set therefore holds some prompts more than once, each with a different epoch.
  std::vector<Prompt> next(int64_t n);

  DataPosition position() const { return position_; }
  // Error{refused} when the position lies outside the data set (it was made for another one).
  void seek(DataPosition position);
  int64_t size() const { return static_cast<int64_t>(prompts_.size()); }

 private:
  void load_order();

  std::vector<Prompt> prompts_;
  uint64_t seed_;
  bool shuffle_;
  DataPosition position_;
  std::vector<uint64_t> order_;  // of position_.epoch
};

}  // namespace vime::data
