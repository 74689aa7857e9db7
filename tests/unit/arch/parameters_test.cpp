#include "arch/parameters.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "tensor/safetensors.hpp"

using namespace vime;
using namespace vime::arch;
using tensor::DType;

namespace {

const fs::path kModels = fs::path(VIME_TEST_DATA) / "models";
constexpr const char* kNames[] = {"llama", "llama_rope_scaled", "qwen2", "qwen3", "qwen3_tied_mha"};

Parameter named(const ModelConfig& config, const std::string& name) {
  for (Parameter& parameter : parameters(config, DType::f32)) {
    if (parameter.full.name == name) return parameter;
  }
  FAIL("no parameter " << name);
  return {};
}

}  // namespace

TEST_CASE("names and shapes are those of the checkpoints that transformers wrote") {
  for (const char* name : kNames) {
    CAPTURE(name);
    std::map<std::string, tensor::Shape> expected;
    for (const auto& entry : fs::directory_iterator(kModels / name)) {
      if (entry.path().extension() != ".safetensors" || entry.path().stem() == "reference") continue;
      const tensor::SafetensorsFile file(entry.path());
      for (const auto& view : file.tensors()) expected[view.info.name] = view.info.shape;
    }
    std::map<std::string, tensor::Shape> made;
    int64_t count = 0;
    const ModelConfig config = read_config(kModels / name);
    for (const Parameter& parameter : parameters(config, DType::f32)) {
      made[parameter.full.name] = parameter.full.shape;
      count += tensor::element_count(parameter.full.shape);
    }
    CHECK(made == expected);
    CHECK(parameter_count(config) == count);
    CHECK(parameter_bytes(config, DType::bf16) == static_cast<uint64_t>(2 * count));
  }
  CHECK(parameter_count(read_config(kModels / "qwen3")) == 125344);  // total_parameters of its index
}

TEST_CASE("the tiny-parallel preset can be cut by every TP and PP of the sweep, unevenly where that is possible") {
  const ModelConfig config = preset("tiny-parallel", 61);
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4}) {
      for (int stage = 0; stage < pp; ++stage) {
        for (int rank = 0; rank < tp; ++rank) {
          CHECK(arena_layout(config, DType::f32, rank, tp, stage_of(config, stage, pp)).total_bytes > 0);
        }
      }
    }
  }
  CHECK(stage_of(config, 0, 4).end - stage_of(config, 0, 4).begin == 2);
  CHECK(stage_of(config, 3, 4).end - stage_of(config, 3, 4).begin == 1);
  CHECK(shard_of(named(config, "model.layers.0.self_attn.k_proj.weight"), 1, 8).copy == 1);
  CHECK(shard_of(named(config, "model.embed_tokens.weight"), 7, 8).shape == tensor::Shape{5, 64});
  CHECK(config.tie_word_embeddings);
}

TEST_CASE("the tiny preset has about 100 thousand parameters") {
  const int64_t count = parameter_count(preset("tiny", 20));
  CHECK(count > 90'000);
  CHECK(count < 110'000);
}

TEST_CASE("the shards of all ranks put together are the whole tensor, owners once") {
  for (const char* name : kNames) {
    for (const int size : {1, 2, 4}) {
      CAPTURE(name);
      CAPTURE(size);
      for (const Parameter& parameter : parameters(read_config(kModels / name), DType::i32)) {
        CAPTURE(parameter.full.name);
        std::vector<int32_t> full(static_cast<std::size_t>(tensor::element_count(parameter.full.shape)));
        std::iota(full.begin(), full.end(), 0);
        std::multiset<int32_t> owned;
        for (int rank = 0; rank < size; ++rank) {
          const Shard shard = shard_of(parameter, rank, size);
          std::vector<int32_t> local(static_cast<std::size_t>(tensor::element_count(shard.shape)));
          copy_shard(reinterpret_cast<const std::byte*>(full.data()), parameter.full, shard,
                     reinterpret_cast<std::byte*>(local.data()));
          if (shard.owner()) owned.insert(local.begin(), local.end());
        }
        CHECK(std::equal(owned.begin(), owned.end(), full.begin(), full.end()));
      }
    }
  }
}

TEST_CASE("a part of one cut is put together from the parts of any other, and nothing of it comes twice") {
  for (const char* name : kNames) {
    for (const Parameter& parameter : parameters(read_config(kModels / name), DType::i32)) {
      CAPTURE(name);
      CAPTURE(parameter.full.name);
      std::vector<int32_t> full(static_cast<std::size_t>(tensor::element_count(parameter.full.shape)));
      std::iota(full.begin(), full.end(), 1);
      const auto part_of = [&](const Shard& shard) {
        std::vector<int32_t> part(static_cast<std::size_t>(tensor::element_count(shard.shape)));
        copy_shard(reinterpret_cast<const std::byte*>(full.data()), parameter.full, shard,
                   reinterpret_cast<std::byte*>(part.data()));
        return part;
      };
      for (const int from_size : {1, 2, 4}) {
        for (const int to_size : {1, 2, 4}) {
          for (int to = 0; to < to_size; ++to) {
            const Shard wanted = shard_of(parameter, to, to_size);
            std::vector<int32_t> got(static_cast<std::size_t>(tensor::element_count(wanted.shape)));
            uint64_t elements = 0;
            for (int from = 0; from < from_size; ++from) {
              const Shard shard = shard_of(parameter, from, from_size);
              if (!shard.owner()) continue;
              elements += overlap_of(parameter.full, shard, wanted).elements();
              const std::vector<int32_t> part = part_of(shard);
              copy_overlap(parameter.full, shard, reinterpret_cast<const std::byte*>(part.data()), wanted,
                           reinterpret_cast<std::byte*>(got.data()));
            }
            CHECK(elements == got.size());
            CHECK(got == part_of(wanted));
          }
        }
      }
    }
  }
}

TEST_CASE("each kind of cut takes the part that its name says") {
  const ModelConfig config = read_config(kModels / "llama");
  const Shard q = shard_of(named(config, "model.layers.0.self_attn.q_proj.weight"), 1, 2);
  CHECK(q.dim == 0);
  CHECK(q.begin == 32);
  CHECK(q.end == 64);
  CHECK(q.shape == tensor::Shape{32, 64});
  const Shard down = shard_of(named(config, "model.layers.1.mlp.down_proj.weight"), 3, 4);
  CHECK(down.dim == 1);
  CHECK(down.begin == 132);
  CHECK(down.shape == tensor::Shape{64, 44});
  const Parameter norm = named(config, "model.norm.weight");
  CHECK(shard_of(norm, 0, 2).owner());
  CHECK_FALSE(shard_of(norm, 1, 2).owner());
  CHECK(shard_of(norm, 1, 2).shape == tensor::Shape{64});
}

TEST_CASE("ranks beyond the key/value heads share a head with their neighbour") {
  const ModelConfig config = read_config(kModels / "llama");  // 2 key/value heads of 16
  const Parameter k = named(config, "model.layers.0.self_attn.k_proj.weight");
  const int64_t begins[] = {0, 0, 16, 16};
  const bool owners[] = {true, false, true, false};
  for (int rank = 0; rank < 4; ++rank) {
    const Shard shard = shard_of(k, rank, 4);
    CHECK(shard.begin == begins[rank]);
    CHECK(shard.end == begins[rank] + 16);
    CHECK(shard.owner() == owners[rank]);
  }
}

TEST_CASE("the vocabulary is cut in rounded-up parts, the last of which may be short or empty") {
  ModelConfig config = read_config(kModels / "llama");
  config.vocab_size = 5;
  const Parameter embedding = named(config, "model.embed_tokens.weight");
  const int64_t rows[] = {2, 2, 1, 0};
  for (int rank = 0; rank < 4; ++rank) CHECK(shard_of(embedding, rank, 4).shape[0] == rows[rank]);
}

TEST_CASE("an arena holds every shard at a multiple of 64 bytes without overlap") {
  const ModelConfig config = read_config(kModels / "qwen3");
  for (int rank = 0; rank < 2; ++rank) {
    const ArenaLayout layout = arena_layout(config, DType::bf16, rank, 2);
    uint64_t end = 0;
    for (const ArenaEntry& entry : layout.entries) {
      CHECK(entry.offset % 64 == 0);
      CHECK(entry.offset >= end);
      CHECK(entry.offset < end + 64);
      CHECK(entry.bytes == 2 * static_cast<uint64_t>(tensor::element_count(entry.shard.shape)));
      end = entry.offset + entry.bytes;
    }
    CHECK(layout.total_bytes >= end);
    CHECK(layout.total_bytes < end + 64);
  }
}

TEST_CASE("layers are cut into stages as equal as possible, the larger ones first") {
  ModelConfig config = preset("tiny", 13);
  config.num_hidden_layers = 5;
  std::vector<int64_t> ends;
  for (int rank = 0; rank < 3; ++rank) {
    const Stage stage = stage_of(config, rank, 3);
    CHECK(stage.begin == (ends.empty() ? 0 : ends.back()));
    ends.push_back(stage.end);
  }
  CHECK(ends == std::vector<int64_t>{2, 4, 5});
}

TEST_CASE("every parameter lies on one stage, and tied embeddings on the last as well, as a copy") {
  for (const bool tied : {false, true}) {
    ModelConfig config = preset("tiny", 13);
    config.num_hidden_layers = 5;
    config.tie_word_embeddings = tied;
    for (const int tp : {1, 2}) {
      std::map<std::string, int64_t> owned;
      std::vector<std::string> copies;
      for (int pp_rank = 0; pp_rank < 4; ++pp_rank) {
        for (int tp_rank = 0; tp_rank < tp; ++tp_rank) {
          const ArenaLayout layout =
              arena_layout(config, tensor::DType::f32, tp_rank, tp, stage_of(config, pp_rank, 4));
          for (const ArenaEntry& entry : layout.entries) {
            const bool vocabulary = entry.parameter.cut == Cut::vocab_rows;
            if (entry.shard.owner()) owned[entry.parameter.full.name] += tensor::element_count(entry.shard.shape);
            if (vocabulary && !entry.shard.owner()) copies.push_back(entry.parameter.full.name);
          }
        }
      }
      for (const Parameter& parameter : parameters(config, tensor::DType::f32)) {
        CHECK(owned[parameter.full.name] == tensor::element_count(parameter.full.shape));
      }
      CHECK(owned.size() == parameters(config, tensor::DType::f32).size());
      CHECK(copies == std::vector<std::string>(tied ? static_cast<size_t>(tp) : 0, "model.embed_tokens.weight"));
    }
  }
}
