#include "weights/checksum.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/random.hpp"

namespace vime::weights {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

template <typename Bits>
uint64_t run_sum(const std::byte* data, uint64_t first_index, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof(Bits));
    sum += mix64(static_cast<uint64_t>(bits) + kGolden * (first_index + i));
  }
  return sum;
}

uint64_t run_sum(std::size_t element, const std::byte* data, uint64_t first_index, uint64_t count) {
  switch (element) {
    case 1:
      return run_sum<uint8_t>(data, first_index, count);
    case 2:
      return run_sum<uint16_t>(data, first_index, count);
    case 4:
      return run_sum<uint32_t>(data, first_index, count);
    case 8:
      return run_sum<uint64_t>(data, first_index, count);
  }
  throw Error(ErrorKind::internal, "checksum of an element of " + std::to_string(element) + " bytes");
}

}  // namespace

uint64_t part_checksum(const tensor::TensorInfo& full, int dim, int64_t begin, int64_t end, const std::byte* local) {
  const std::size_t element = tensor::element_bytes(full.dtype);
  if (full.shape.empty()) return run_sum(element, local, 0, 1);
  VIME_CHECK(dim >= 0 && dim < static_cast<int>(full.shape.size()), full.name);
  VIME_CHECK(begin >= 0 && begin <= end && end <= full.shape[dim], full.name);
  uint64_t outer = 1, inner = 1;
  for (int i = 0; i < dim; ++i) outer *= static_cast<uint64_t>(full.shape[i]);
  for (size_t i = dim + 1; i < full.shape.size(); ++i) inner *= static_cast<uint64_t>(full.shape[i]);
  const uint64_t run = static_cast<uint64_t>(end - begin) * inner;  // elements that lie together in both layouts
  uint64_t sum = 0;
  for (uint64_t block = 0; block < outer; ++block) {
    const uint64_t first = (block * static_cast<uint64_t>(full.shape[dim]) + static_cast<uint64_t>(begin)) * inner;
    sum += run_sum(element, local + block * run * element, first, run);
  }
  return sum;
}

uint64_t full_checksum(const tensor::TensorView& tensor) {
  const int64_t end = tensor.info.shape.empty() ? 1 : tensor.info.shape[0];
  return part_checksum(tensor.info, 0, 0, end, tensor.data);
}

}  // namespace vime::weights
