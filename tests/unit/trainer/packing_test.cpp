#include "trainer/packing.hpp"

#include "torch_doctest.hpp"

#include <set>

#include "layouts.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

// Ranks that only say who they are: packing asks for no more.
class Named final : public model::Collectives {
 public:
  Named(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<torch::Tensor> all_gather(const torch::Tensor&) override { return {}; }
  torch::Tensor reduce_scatter(const torch::Tensor& whole) override { return whole; }

 private:
  int rank_, size_;
};

std::vector<int64_t> values(const torch::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

}  // namespace

TEST_CASE(
    "the zig-zag cut gives every position one place, and each rank a piece from the front and one from the back") {
  for (const int size : {2, 4, 8}) {
    for (int64_t length = 1; length <= 40; ++length) {
      const ZigZag cut{length, size};
      std::set<std::pair<int, int64_t>> places;
      for (int64_t position = 0; position < length; ++position) {
        CHECK(cut.rank_of(position) >= 0);
        CHECK(cut.rank_of(position) < size);
        CHECK(cut.row_of(position) < cut.rows());
        places.insert({cut.rank_of(position), cut.row_of(position)});
      }
      CHECK(static_cast<int64_t>(places.size()) == length);
    }
  }
  // Sixteen tokens over two ranks, as Megatron deals them: 0..3 and 12..15, 4..11.
  const ZigZag cut{16, 2};
  for (int64_t position = 0; position < 16; ++position) {
    CHECK(cut.rank_of(position) == (position < 4 || position >= 12 ? 0 : 1));
  }
}

TEST_CASE("context-parallel ranks share out every token and every response token, and have equally many rows") {
  const rollout::TrainBatch batch = parallel_batch();
  const BatchView view(batch);
  const rollout::MicroBatch samples = {0, 1, 2, 3, 4, 5, 6};
  for (const int cp : {1, 2, 8}) {
    for (const int multiple : {1, 4}) {
      std::multiset<int64_t> places;
      std::map<int64_t, int64_t> target_of;
      int64_t rows = -1, tokens = 0, real = 0;
      for (const int64_t sample : samples) tokens += batch.lengths[static_cast<size_t>(sample)];
      for (int rank = 0; rank < cp; ++rank) {
        const Packing packing = pack(view, samples, std::make_shared<Named>(rank, cp), multiple);
        CHECK(packing.rows() % multiple == 0);
        if (rows >= 0) CHECK(packing.rows() == rows);
        rows = packing.rows();
        places.insert(packing.places.begin(), packing.places.end());
        const std::vector<int64_t> targets = values(packing.targets), selected = values(packing.selected);
        const std::vector<int64_t> ids = values(packing.ids), positions = values(packing.positions);
        REQUIRE(targets.size() == packing.places.size());
        for (size_t i = 0; i < targets.size(); ++i) target_of[packing.places[i]] = targets[i];
        for (size_t i = 0; i < ids.size(); ++i) real += positions[i] > 0 ? 1 : 0;
        for (const int64_t row : selected) CHECK(row < rows);
      }
      CHECK(real == tokens - static_cast<int64_t>(samples.size()));  // every position but the first of each sample
      int64_t place = 0;
      for (const int64_t sample : samples) {
        const auto at = static_cast<size_t>(sample);
        const int64_t begin = view.token_offsets[at] + batch.lengths[at] - batch.response_lengths[at];
        for (int64_t t = 0; t < batch.response_lengths[at]; ++t, ++place) {
          CHECK(places.count(place) == 1);
          CHECK(target_of[place] == batch.tokens[static_cast<size_t>(begin + t)]);
        }
      }
      CHECK(static_cast<int64_t>(places.size()) == place);
    }
  }
}
