// lib/gpu's copies against CUDA's own: one large copy, many small ones, halves of rows, and small ones with checksums.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "gpu/copies.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/raw_copy.hpp"
#include "gpu/streams.hpp"

using namespace vime;

int main() {
  gpu::select_device(gpu::device_uuid(0));
  constexpr uint64_t kBytes = uint64_t{8} << 30, kPiece = 3 << 20;
  const gpu::DeviceMemory from(kBytes), to(kBytes);
  gpu::fill_random(from.data(), kBytes, 1);
  const double own_ms = gpu::quickest_copy_ms(from.data(), to.data(), kBytes, 5);
  const auto one = [&](uint64_t at, uint64_t bytes) {
    gpu::Copy copy;
    copy.from = from.data() + at;
    copy.to = to.data() + at;
    copy.row_bytes = bytes;
    copy.element_bytes = 2;
    return copy;
  };
  std::vector<gpu::Copy> pieces, columns;
  // From neighbours into places that are none, so that they cannot be made one.
  const uint64_t count = kBytes / kPiece;
  for (uint64_t i = 0; i < count; ++i) {
    pieces.push_back(one(i * kPiece, kPiece));
    pieces.back().to = to.data() + (i ^ 1) % count * kPiece;
  }
  for (uint64_t at = 0; at + kPiece <= kBytes; at += kPiece) {  // half of each row of 4 KiB, twice
    for (const uint64_t half : {uint64_t{0}, uint64_t{2048}}) {
      columns.push_back(one(at + half, 2048));
      columns.back().rows = kPiece / 4096;
      columns.back().from_pitch = columns.back().to_pitch = 4096;
      columns.back().index_pitch = 2048;
    }
  }
  const gpu::OwnedStream stream;
  const auto quickest = [&](const std::vector<gpu::Copy>& list, bool sums) {
    gpu::Copies copies(list, sums);
    gpu::Event begin(true), end(true);
    double ms = 1e9;
    for (int i = 0; i < 5; ++i) {
      begin.record(stream.get());
      copies.run(stream.get());
      end.record(stream.get());
      stream.synchronize();
      ms = std::min<double>(ms, end.since(begin));
    }
    return ms * static_cast<double>(kBytes) / static_cast<double>(copies.bytes());
  };
  const double whole = quickest({one(0, kBytes)}, false), small = quickest(pieces, false),
               cut = quickest(columns, false), summed = quickest(pieces, true);
  const auto rate = [&](double ms) { return static_cast<double>(kBytes) / ms / 1e6; };
  std::printf(
      "GB/s one way, of 8 GiB: cudaMemcpy %.0f, one copy %.0f, 3 MiB each %.0f, halves of rows %.0f, 3 MiB each with "
      "sums %.0f\n",
      rate(own_ms), rate(whole), rate(small), rate(cut), rate(summed));
  return 0;
}
