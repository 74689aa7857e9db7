#include "executor/device_step.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"
#include "gpu/sampling_kernels.hpp"

namespace vime::executor {
namespace {

// The row behind the last of the span that begins at `begin`.
int64_t end_of_span(const std::vector<engine::TokenRow>& rows, int64_t begin) {
  auto end = static_cast<std::size_t>(begin) + 1;
  while (end < rows.size() && rows[end].slot == rows[end - 1].slot && rows[end].position == rows[end - 1].position + 1)
    ++end;
  return static_cast<int64_t>(end);
}

template <typename T>
T* at(std::byte* block, uint64_t offset) {
  return reinterpret_cast<T*>(block + offset);
}

void fill_rows(const engine::Batch& batch, const StepLayout& layout, std::byte* block) {
  auto* const ids = at<int64_t>(block, layout.ids);
  auto* const positions = at<int64_t>(block, layout.positions);
  auto* const slots = at<int32_t>(block, layout.slots);
  auto* const lengths = at<int32_t>(block, layout.lengths);
  const std::size_t count = batch.rows.size();
  for (std::size_t i = 0; i < static_cast<std::size_t>(layout.sizes.rows); ++i) {
    const engine::TokenRow row = i < count ? batch.rows[i] : engine::TokenRow{0, 0, -1};
    ids[i] = row.token;
    positions[i] = row.position;
    slots[i] = row.slot;
    lengths[i] = row.slot < 0 ? 0 : row.position + 1;
  }
}

void fill_spans(const engine::Batch& batch, const StepLayout& layout, int64_t positions, std::byte* block) {
  if (layout.sizes.spans == 0) return;
  auto* const query_starts = at<int32_t>(block, layout.query_starts);
  auto* const key_starts = at<int32_t>(block, layout.key_starts);
  auto* const used_keys = at<int32_t>(block, layout.used_keys);
  const auto count = static_cast<int64_t>(batch.rows.size());
  int64_t row = layout.sizes.row_wise;
  for (int64_t span = 0; span < layout.sizes.spans; ++span) {
    const bool real = row < count;
    const int64_t end = real ? end_of_span(batch.rows, row) : row + 1;
    query_starts[span] = static_cast<int32_t>(row - layout.sizes.row_wise);
    key_starts[span] = real ? static_cast<int32_t>(batch.rows[static_cast<std::size_t>(row)].slot * positions) : 0;
    used_keys[span] = real ? batch.rows[static_cast<std::size_t>(end) - 1].position + 1 : 0;
    row = end;
  }
  VIME_CHECK(row == layout.sizes.rows, "the spans are all rows");
  query_starts[layout.sizes.spans] = static_cast<int32_t>(row - layout.sizes.row_wise);
  key_starts[layout.sizes.spans] = 0;  // only the beginnings are read
}

void fill_samples(const engine::Batch& batch, const StepLayout& layout, std::byte* block) {
  auto* const rows = at<int64_t>(block, layout.sample_rows);
  auto* const settings = at<gpu::SampleRow>(block, layout.settings);
  auto* const banned = at<int32_t>(block, layout.banned);
  const std::size_t count = batch.samples.size();
  int32_t bans = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(layout.sizes.samples); ++i) {
    gpu::SampleRow setting;
    setting.temperature = 0;
    rows[i] = static_cast<int64_t>(i);
    if (i < count) {
      const engine::SampleSpec& spec = batch.samples[i];
      rows[i] = spec.row;
      setting.temperature = spec.temperature;
      setting.top_p = spec.top_p;
      setting.min_p = spec.min_p;
      setting.top_k = spec.top_k;
      setting.forced = spec.forced;
      setting.uniform = uniform01(mix_key(spec.seed, static_cast<uint64_t>(spec.step)));
      setting.banned_begin = bans;
      setting.banned_count = static_cast<int32_t>(spec.banned.size());
      std::copy(spec.banned.begin(), spec.banned.end(), banned + bans);
      bans += setting.banned_count;
    }
    settings[i] = setting;
  }
}

}  // namespace

StepSizes sizes_of(const engine::Batch& batch, RowWise row_wise) {
  StepSizes sizes;
  sizes.rows = static_cast<int64_t>(batch.rows.size());
  sizes.samples = static_cast<int64_t>(batch.samples.size());
  for (const engine::SampleSpec& spec : batch.samples) sizes.banned += static_cast<int64_t>(spec.banned.size());
  if (row_wise == RowWise::all) {
    sizes.row_wise = sizes.rows;
    return sizes;
  }
  for (int64_t row = 0; row < sizes.rows;) {
    const int64_t end = end_of_span(batch.rows, row);
    if (row_wise == RowWise::leading && sizes.row_wise == row && end == row + 1) {
      sizes.row_wise = end;
    } else {
      ++sizes.spans;
      sizes.longest = std::max(sizes.longest, end - row);
    }
    row = end;
  }
  return sizes;
}

StepLayout::StepLayout(const StepSizes& step_sizes) : sizes(step_sizes) {
  const auto place = [this](int64_t count, std::size_t size) {
    const uint64_t offset = bytes;
    bytes = (bytes + static_cast<uint64_t>(count) * size + 15) / 16 * 16;
    return offset;
  };
  ids = place(sizes.rows, sizeof(int64_t));
  positions = place(sizes.rows, sizeof(int64_t));
  sample_rows = place(sizes.samples, sizeof(int64_t));
  settings = place(sizes.samples, sizeof(gpu::SampleRow));
  slots = place(sizes.rows, sizeof(int32_t));
  lengths = place(sizes.rows, sizeof(int32_t));
  query_starts = place(sizes.spans + 1, sizeof(int32_t));
  key_starts = place(sizes.spans + 1, sizeof(int32_t));
  used_keys = place(sizes.spans, sizeof(int32_t));
  banned = place(sizes.banned, sizeof(int32_t));
}

void fill_step(const engine::Batch& batch, const StepLayout& layout, int64_t positions, std::byte* block) {
  fill_rows(batch, layout, block);
  fill_spans(batch, layout, positions, block);
  fill_samples(batch, layout, block);
}

}  // namespace vime::executor
