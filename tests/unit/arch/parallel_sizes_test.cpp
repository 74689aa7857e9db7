#include "arch/parallel_sizes.hpp"

#include <doctest/doctest.h>

#include "arch/parameters.hpp"
#include "base/error.hpp"

using namespace vime;
using namespace vime::arch;

namespace {

ModelConfig shaped(int64_t heads, int64_t kv_heads, int64_t intermediate) {
  ModelConfig config = preset("tiny", 13);
  config.num_attention_heads = heads;
  config.num_key_value_heads = kv_heads;
  config.intermediate_size = intermediate;
  return config;
}

using Sizes = std::vector<int64_t>;

}  // namespace

TEST_CASE("a tensor-parallel size divides heads and intermediate size, and key/value heads either way") {
  CHECK(legal_tensor_parallel(shaped(8, 4, 128)) == Sizes{1, 2, 4, 8});
  CHECK(legal_tensor_parallel(shaped(12, 4, 144)) == Sizes{1, 2, 4, 12});  // 3 and 6 cut through key/value heads
  CHECK(legal_tensor_parallel(shaped(8, 8, 36)) == Sizes{1, 2, 4});
  CHECK(legal_tensor_parallel(shaped(14, 2, 4864)) == Sizes{1, 2});
  CHECK(legal_tensor_parallel(shaped(1, 1, 7)) == Sizes{1});
}

TEST_CASE("a size that the model cannot be cut into is refused with what cannot be cut and what is possible") {
  const ModelConfig config = shaped(12, 4, 148);
  CHECK(tensor_parallel_fault(config, 4).empty());
  CHECK(tensor_parallel_fault(config, 5) == "12 attention heads cannot be cut over 5 tensor-parallel ranks");
  CHECK(tensor_parallel_fault(config, 24) == "12 attention heads cannot be cut over 24 tensor-parallel ranks");
  CHECK(tensor_parallel_fault(config, 6) == "4 key/value heads cannot be cut over 6 tensor-parallel ranks");
  CHECK(tensor_parallel_fault(config, 12) == "148 intermediate rows cannot be cut over 12 tensor-parallel ranks");
  CHECK_THROWS_WITH_AS(
      arena_layout(config, tensor::DType::f32, 0, 6),
      "4 key/value heads cannot be cut over 6 tensor-parallel ranks (use a tensor-parallel size of 1, 2, 4)", Error);
  CHECK_THROWS_WITH_AS(stage_of(config, 0, 8),
                       "2 layers cannot be cut into 8 pipeline stages (use a pipeline-parallel size of at most 2)",
                       Error);
}

TEST_CASE("what is called legal can be cut, and nothing else can") {
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{8, 4}, {12, 4}, {12, 6}, {6, 6}, {16, 1}}) {
    const ModelConfig config = shaped(heads, kv_heads, 96);
    for (int size = 1; size <= heads + 1; ++size) {
      CAPTURE(heads);
      CAPTURE(size);
      bool cut = true;
      for (const Parameter& parameter : parameters(config, tensor::DType::f32)) {
        try {
          shard_of(parameter, size - 1, size);
        } catch (const Error&) {
          cut = false;
        }
      }
      CHECK(cut == tensor_parallel_fault(config, size).empty());
    }
  }
}

TEST_CASE("divisors are listed once, ascending") {
  CHECK(divisors(1) == Sizes{1});
  CHECK(divisors(12) == Sizes{1, 2, 3, 4, 6, 12});
  CHECK(divisors(49) == Sizes{1, 7, 49});
  CHECK(divisors(2147483647) == Sizes{1, 2147483647});
}
