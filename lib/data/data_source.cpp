#include "data/data_source.hpp"

#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace vime::data {

DataSource::DataSource(std::vector<Prompt> prompts, uint64_t seed, bool shuffle)
    : prompts_(std::move(prompts)), seed_(seed), shuffle_(shuffle) {
  if (prompts_.empty()) throw Error(ErrorKind::refused, "the data set has no prompts");
  load_order();
}

std::vector<Prompt> DataSource::next(int64_t n) {
  VIME_CHECK(n >= 0, "asked for " + std::to_string(n) + " prompts");
  std::vector<Prompt> batch;
  batch.reserve(static_cast<size_t>(n));
  while (static_cast<int64_t>(batch.size()) < n) {
    batch.push_back(prompts_[order_[static_cast<size_t>(position_.offset)]]);
    if (++position_.offset == size()) {
      position_ = {position_.epoch + 1, 0};
      load_order();
    }
  }
  return batch;
}

void DataSource::seek(DataPosition position) {
  if (position.epoch < 0 || position.offset < 0 || position.offset >= size()) {
    throw Error(ErrorKind::refused,
                "data position: expected an offset in 0..." + std::to_string(size() - 1) + ", found epoch " +
                    std::to_string(position.epoch) + ", offset " + std::to_string(position.offset),
                "the position was saved for another data set");
  }
  position_ = position;
  load_order();
}

void DataSource::load_order() {
  if (shuffle_) {
    order_ = permutation(prompts_.size(), mix_key(seed_, static_cast<uint64_t>(position_.epoch)));
  } else if (order_.empty()) {
    order_.resize(prompts_.size());
    std::iota(order_.begin(), order_.end(), uint64_t{0});
  }
}

}  // namespace vime::data
