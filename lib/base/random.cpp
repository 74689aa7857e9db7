#include "base/random.hpp"

#include <sys/random.h>

#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime {

std::vector<uint64_t> permutation(uint64_t count, uint64_t key) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (uint64_t i = count; i > 1; --i) {
    // Multiply-shift maps 64 random bits to [0, i); its bias is below i / 2^64.
    const auto wide = static_cast<unsigned __int128>(mix_key(key, i)) * i;
    std::swap(order[i - 1], order[static_cast<uint64_t>(wide >> 64)]);
  }
  return order;
}

std::string random_token() {
  uint64_t words[2];
  if (::getrandom(words, sizeof words, 0) != static_cast<ssize_t>(sizeof words)) {
    throw_errno(ErrorKind::internal, "getrandom");
  }
  return hex(words[0]) + hex(words[1]);
}

}  // namespace vime
