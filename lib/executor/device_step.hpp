// A step as the arrays that a GPU reads, in one block of memory so that one copy brings them there. Knows neither
// LibTorch nor CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/executor.hpp"

namespace vime::executor {

// Which rows the kernel for single rows takes: those that lead the batch and are alone in their sequence, all, or none.
enum class RowWise { leading, all, none };

// How much of what a step has.
struct StepSizes {
  int64_t rows = 0;
  int64_t row_wise = 0;  // the first of them; the others lie in spans of consecutive positions of one slot
  int64_t spans = 0;
  int64_t longest = 0;  // rows of the longest span
  int64_t samples = 0;
  int64_t banned = 0;
};

StepSizes sizes_of(const engine::Batch& batch, RowWise row_wise);

// Where each array lies in the block, in bytes.
struct StepLayout {
  explicit StepLayout(const StepSizes& step_sizes);

  StepSizes sizes;
  uint64_t ids = 0;           // int64 [rows]
  uint64_t positions = 0;     // int64 [rows]
  uint64_t sample_rows = 0;   // int64 [samples]: the row that each sample draws from
  uint64_t settings = 0;      // gpu::SampleRow [samples]
  uint64_t slots = 0;         // int32 [rows]; -1: padding
  uint64_t lengths = 0;       // int32 [rows]: position + 1; 0 for padding
  uint64_t query_starts = 0;  // int32 [spans + 1], from the first row that is not row_wise
  uint64_t key_starts = 0;    // int32 [spans + 1]: the first cache row of the span's slot
  uint64_t used_keys = 0;     // int32 [spans]
  uint64_t banned = 0;        // int32 [banned]
  uint64_t bytes = 0;
};

// Writes the batch. A layout with more rows, spans and samples than the batch has gets padding: rows that touch no
// slot, each a span of its own, and greedy samples of them. positions: of a slot.
void fill_step(const engine::Batch& batch, const StepLayout& layout, int64_t positions, std::byte* block);

}  // namespace vime::executor
