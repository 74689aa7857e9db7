#include "trainer/packing.hpp"

#include <algorithm>

namespace vime::trainer {
namespace {

int64_t up_to_multiple(int64_t rows, int multiple) {
  return (rows + multiple - 1) / multiple * multiple;
}

// Collects the rows of one rank; `ids` and `positions` grow together.
struct Rows {
  std::vector<int64_t> ids, positions;
  std::vector<int64_t> selected, targets, places;

  int64_t count() const { return static_cast<int64_t>(ids.size()); }
  void pad_to(int64_t rows) {
    ids.resize(static_cast<size_t>(rows), 0);
    positions.resize(static_cast<size_t>(rows), 0);
  }
};

// A sample's tokens, and which of them belong to its response.
struct SampleTokens {
  const int64_t* ids;
  int64_t length;
  int64_t response_begin;  // in the sample
  int64_t first_place;     // of its first response token among the micro-batch's

  // Adds positions begin..end-1, as far as there are tokens.
  void add(int64_t begin, int64_t end, Rows& rows) const {
    for (int64_t position = begin; position < std::min(end, length); ++position) {
      const int64_t next = position + 1;
      if (next >= response_begin && next < length) {
        rows.selected.push_back(rows.count());
        rows.targets.push_back(ids[next]);
        rows.places.push_back(first_place + next - response_begin);
      }
      rows.ids.push_back(ids[position]);
      rows.positions.push_back(position);
    }
  }
};

// Adds this rank's two pieces of a sequence; returns their spans. `all_rows`: of every rank.
void add_pieces(const SampleTokens& sample, int cp_rank, const ZigZag& cut, int64_t all_rows, Rows& rows,
                std::vector<model::QuerySpan>& spans) {
  const int64_t first_row = rows.count();
  for (const int64_t piece : {int64_t{cp_rank}, int64_t{2 * cut.size - 1 - cp_rank}}) {
    const int64_t begin = piece * cut.piece();
    const int64_t end = std::min(begin + cut.piece(), cut.length);
    const int64_t row = rows.count();
    sample.add(begin, end, rows);
    rows.pad_to(row + cut.piece());
    if (begin >= end) continue;
    model::QuerySpan span{row, end - begin, begin, {}};
    for (int64_t position = 0; position < end; ++position) {
      span.keys.push_back(cut.rank_of(position) * all_rows + first_row + cut.row_of(position));
    }
    spans.push_back(std::move(span));
  }
}

int64_t packed_rows(const BatchView& view, const rollout::MicroBatch& samples, int cp_size, int row_multiple) {
  int64_t rows = 0;
  for (const int64_t sample : samples) {
    const int64_t length = view.batch.lengths[static_cast<size_t>(sample)];
    rows += cp_size == 1 ? length : ZigZag{length, cp_size}.rows();
  }
  return up_to_multiple(rows, row_multiple);
}

}  // namespace

BatchView::BatchView(const rollout::TrainBatch& of)
    : batch(of), token_offsets(rollout::offsets(of.lengths)), response_offsets(rollout::offsets(of.response_lengths)) {}

int ZigZag::rank_of(int64_t position) const {
  const auto at = static_cast<int>(position / piece());
  return at < size ? at : 2 * size - 1 - at;
}

int64_t ZigZag::row_of(int64_t position) const {
  return position / piece() < size ? position % piece() : piece() + position % piece();
}

Packing pack(const BatchView& view, const rollout::MicroBatch& samples, const model::CollectivesPtr& cp,
             int row_multiple, torch::Device device, torch::ScalarType dtype, bool same_bits) {
  Packing packing;
  const int64_t all_rows = packed_rows(view, samples, cp->size(), row_multiple);
  Rows rows;
  std::vector<int64_t> lengths;
  std::vector<model::QuerySpan> spans;
  for (const int64_t sample : samples) {
    const auto at = static_cast<size_t>(sample);
    const int64_t length = view.batch.lengths[at];
    const int64_t response = view.batch.response_lengths[at];
    const SampleTokens tokens{view.batch.tokens.data() + view.token_offsets[at], length, length - response,
                              packing.response_tokens};
    if (cp->size() == 1) {
      tokens.add(0, length, rows);
      lengths.push_back(length);
    } else {
      add_pieces(tokens, cp->rank(), {length, cp->size()}, all_rows, rows, spans);
    }
    packing.response_lengths.push_back(response);
    packing.response_tokens += response;
  }
  if (cp->size() == 1) {
    lengths.resize(lengths.size() + static_cast<size_t>(all_rows - rows.count()), 1);  // padding, each row on its own
    packing.attention = model::packed_attention(lengths, device, dtype, same_bits);
  } else {
    packing.attention = model::context_parallel_attention(spans, all_rows, cp, device, dtype);
  }
  rows.pad_to(all_rows);
  packing.ids = torch::tensor(rows.ids, torch::kInt64);
  packing.positions = torch::tensor(rows.positions, torch::kInt64);
  packing.selected = torch::tensor(rows.selected, torch::kInt64).to(device);
  packing.targets = torch::tensor(rows.targets, torch::kInt64).to(device);
  packing.places = std::move(rows.places);
  return packing;
}

}  // namespace vime::trainer
