// Random numbers as pure functions of their keys, so that no result depends on the order in which they are asked for.
// The mixer is splitmix64's finaliser (Steele, Lea, Flood 2014; constants of Stafford's variant 13).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vime {

inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// A key made of several parts; order matters.
inline uint64_t mix_key(uint64_t a, uint64_t b) {
  return mix64(mix64(a) ^ (b + 0x632be59bd9b4e019ull));
}
inline uint64_t mix_key(uint64_t a, uint64_t b, uint64_t c) {
  return mix_key(mix_key(a, b), c);
}

// In [0, 1), 53 bits.
inline double uniform01(uint64_t key) {
  return static_cast<double>(mix64(key) >> 11) * 0x1.0p-53;
}

// The order of 0..count-1 for this key (Fisher-Yates with counter-based draws).
std::vector<uint64_t> permutation(uint64_t count, uint64_t key);

// From the system: 2 x 64 bits as 32 hex digits. For run ids and tokens.
std::string random_token();

}  // namespace vime
