// A worker's weights from a trainer's shards: every layout into engines of every size, against shards that are cut out
// of whole tensors.
#include "channels/shard_store.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"

using namespace vime;
using namespace vime::channels;
using tensor::DType;

namespace {

const fs::path kModels = fs::path(VIME_TEST_DATA) / "models";

// A word of a whole tensor. float32 values are chosen so that bfloat16 keeps them.
void fill_element(std::byte* at, DType dtype, const std::string& name, uint64_t index) {
  const uint64_t drawn = mix_key(std::hash<std::string>()(name), index);
  const auto bf16 = static_cast<uint16_t>(0x3f00 + drawn % 0x200);
  const uint32_t f32 = static_cast<uint32_t>(bf16) << 16;
  if (dtype == DType::bf16) {
    std::memcpy(at, &bf16, sizeof bf16);
  } else {
    std::memcpy(at, &f32, sizeof f32);
  }
}

std::vector<std::byte> whole(const tensor::TensorInfo& info) {
  std::vector<std::byte> bytes(info.bytes());
  const uint64_t element = tensor::element_bytes(info.dtype);
  for (uint64_t i = 0; i < bytes.size() / element; ++i) {
    fill_element(bytes.data() + i * element, info.dtype, info.name, i);
  }
  return bytes;
}

std::vector<std::byte> arena_of(const arch::ArenaLayout& layout) {
  std::vector<std::byte> arena(layout.total_bytes);
  for (const arch::ArenaEntry& entry : layout.entries) {
    arch::copy_shard(whole(entry.parameter.full).data(), entry.parameter.full, entry.shard,
                     arena.data() + entry.offset);
  }
  return arena;
}

// The ranks of a replica, with their weights.
struct Trainer {
  Trainer(const arch::ModelConfig& config, DType dtype, int tp_size, int stages)
      : layouts(arch::replica_layouts(config, dtype, tp_size, stages)) {
    for (const auto& of_stage : layouts) {
      auto& held = arenas.emplace_back();
      auto& shown = memory.ranks.emplace_back();
      for (const arch::ArenaLayout& layout : of_stage) held.push_back(arena_of(layout));
      for (const std::vector<std::byte>& arena : held) shown.push_back({arena.data(), arena.size()});
    }
  }
  std::vector<std::vector<arch::ArenaLayout>> layouts;
  std::vector<std::vector<std::vector<std::byte>>> arenas;
  weights::ReplicaMemory memory;
};

weights::Bucket all_tensors(const arch::ModelConfig& config, DType dtype) {
  std::vector<tensor::TensorInfo> tensors;
  for (const arch::Parameter& parameter : arch::parameters(config, dtype)) tensors.push_back(parameter.full);
  return weights::bucket_of(tensors);
}

// A worker of an engine.
struct Worker {
  Worker(const arch::ModelConfig& config, DType dtype, int rank, int size)
      : layout(arch::arena_layout(config, dtype, rank, size)),
        arena(layout.total_bytes),
        store(
            layout, arena.data(), config.tie_word_embeddings,
            [config](DType sent, int tp_size, int stages) {
              return arch::replica_layouts(config, sent, tp_size, stages);
            },
            [this](const tensor::TensorView& view, DType to) {
              REQUIRE(view.info.dtype == DType::f32);
              REQUIRE(to == DType::bf16);
              converted.resize(view.info.bytes() / 2);
              for (uint64_t i = 0; i < converted.size() / 2; ++i) {
                std::memcpy(converted.data() + 2 * i, view.data + 4 * i + 2, 2);
              }
              return converted.data();
            }) {}
  arch::ArenaLayout layout;
  std::vector<std::byte> arena;
  std::vector<std::byte> converted;
  HostShardStore store;
};

}  // namespace

TEST_CASE("from every layout every engine's workers get their parts, and all of them") {
  for (const char* name : {"llama", "qwen2", "qwen3", "qwen3_tied_mha"}) {
    const arch::ModelConfig config = arch::read_config(kModels / name);
    const weights::Bucket bucket = all_tensors(config, DType::f32);
    for (const int stages : {1, 2}) {
      for (const int tp_size : {1, 2, 4}) {
        Trainer trainer(config, DType::f32, tp_size, stages);
        for (const int workers : {1, 2, 4}) {
          for (int index = 0; index < workers; ++index) {
            CAPTURE(name);
            CAPTURE(stages);
            CAPTURE(tp_size);
            CAPTURE(workers);
            CAPTURE(index);
            trainer.memory.nearest = {index % stages, index % tp_size};
            Worker worker(config, DType::f32, index, workers);
            worker.store.start();
            CHECK(worker.store.missing().size() == worker.layout.entries.size());
            worker.store.take_shards(bucket, trainer.memory);
            CHECK(worker.store.missing().empty());
            CHECK(worker.arena == arena_of(worker.layout));
          }
        }
      }
    }
  }
}

TEST_CASE("parts of the vocabulary that are short or empty are read like others") {
  arch::ModelConfig config = arch::read_config(kModels / "llama");
  config.vocab_size = 5;  // 2, 2, 1 and 0 rows on four ranks
  for (const int tp_size : {1, 2, 4}) {
    const Trainer trainer(config, DType::f32, tp_size, 1);
    for (const int workers : {1, 2, 4}) {
      for (int index = 0; index < workers; ++index) {
        CAPTURE(tp_size);
        CAPTURE(workers);
        CAPTURE(index);
        Worker worker(config, DType::f32, index, workers);
        worker.store.start();
        worker.store.take_shards(all_tensors(config, DType::f32), trainer.memory);
        CHECK(worker.store.missing().empty());
        CHECK(worker.arena == arena_of(worker.layout));
      }
    }
  }
}

TEST_CASE("a part that several ranks hold is read on the worker's own device") {
  const arch::ModelConfig config = arch::read_config(kModels / "llama");  // 2 key/value heads
  const auto layouts = arch::replica_layouts(config, DType::f32, 4, 1);
  for (int rank = 0; rank < 4; ++rank) {
    const ShardSources sources(layouts, {0, rank});
    for (const arch::ArenaEntry& own : layouts[0][static_cast<std::size_t>(rank)].entries) {
      CAPTURE(own.parameter.full.name);
      const std::vector<ShardSource> found = sources.of(own.parameter, own.shard);
      REQUIRE(found.size() == 1);
      CHECK(found[0].rank == RankPlace{0, rank});
    }
  }
  // What no copy is near of comes from one rank.
  const ShardSources far(layouts, {0, 3});
  const arch::ArenaEntry& first = layouts[0][0].entries[2];
  REQUIRE(first.parameter.full.name.ends_with("q_proj.weight"));
  REQUIRE(far.of(first.parameter, first.shard).size() == 1);
  CHECK(far.of(first.parameter, first.shard)[0].rank == RankPlace{0, 0});
}

TEST_CASE("tied embeddings of the first and the last stage are read once, from the near one") {
  const arch::ModelConfig config = arch::read_config(kModels / "qwen3_tied_mha");
  const auto layouts = arch::replica_layouts(config, DType::f32, 2, 2);
  const arch::Parameter embedding = arch::parameters(config, DType::f32)[0];
  const arch::Shard all = arch::shard_of(embedding, 0, 1);
  for (int stage = 0; stage < 2; ++stage) {
    const ShardSources sources(layouts, {stage, 1});
    const std::vector<ShardSource> found = sources.of(embedding, all);
    REQUIRE(found.size() == 2);
    CHECK(found[0].rank == RankPlace{0, 0});
    CHECK(found[1].rank == RankPlace{stage, 1});
  }
}

TEST_CASE("float32 shards become a bfloat16 worker's weights") {
  const arch::ModelConfig config = arch::read_config(kModels / "llama");
  const Trainer trainer(config, DType::f32, 2, 2);
  Worker worker(config, DType::bf16, 1, 4);
  worker.store.start();
  worker.store.take_shards(all_tensors(config, DType::f32), trainer.memory);
  CHECK(worker.arena == arena_of(worker.layout));
}

TEST_CASE("tensors that were not named are missing, and arenas of another layout are refused") {
  const arch::ModelConfig config = arch::read_config(kModels / "llama");
  Trainer trainer(config, DType::f32, 2, 1);
  weights::Bucket bucket = all_tensors(config, DType::f32);
  bucket.entries.erase(bucket.entries.begin() + 3);
  const std::string left_out = arch::parameters(config, DType::f32)[3].full.name;
  Worker worker(config, DType::f32, 0, 1);
  worker.store.start();
  worker.store.take_shards(bucket, trainer.memory);
  CHECK(worker.store.missing() == std::vector<std::string>{left_out});

  trainer.memory.ranks[0][1].bytes -= 64;
  CHECK_THROWS_WITH_AS(worker.store.take_shards(bucket, trainer.memory),
                       doctest::Contains("stage 0, tensor-parallel rank 1"), Error);
  trainer.memory.ranks[0][1].bytes += 64;
  bucket.entries[5].info.dtype = DType::bf16;
  CHECK_THROWS_WITH_AS(worker.store.take_shards(bucket, trainer.memory), doctest::Contains("another dtype"), Error);
}

TEST_CASE("a part that no rank has all of is refused, with how much there is") {
  const arch::ModelConfig config = arch::read_config(kModels / "llama");
  auto layouts = arch::replica_layouts(config, DType::f32, 2, 1);
  const arch::ArenaEntry entry = layouts[0][0].entries[2];
  layouts[0][1].entries.erase(layouts[0][1].entries.begin() + 2);
  const ShardSources sources(std::move(layouts), {0, 0});
  CHECK_THROWS_WITH_AS(sources.of(entry.parameter, arch::shard_of(entry.parameter, 0, 1)),
                       doctest::Contains("hold 2048 of the part's 4096 elements"), Error);
}
