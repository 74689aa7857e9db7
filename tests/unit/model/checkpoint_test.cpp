#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "models.hpp"
#include "torch_doctest.hpp"

using namespace vime;
using namespace vime::model;
using tensor::DType;

namespace {

bool same_weights(const Decoder& a, const Decoder& b) {
  return std::equal(a.parameters().begin(), a.parameters().end(), b.parameters().begin(), b.parameters().end(),
                    [](const auto& x, const auto& y) { return x.name == y.name && x.value.equal(y.value); });
}

std::string refusal(const arch::ModelConfig& config, const fs::path& dir) {
  OwnedDecoder owned(config, single_rank());
  try {
    load_weights(owned.decoder, dir);
    return "loaded";
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::refused);
    CHECK(e.message().find(dir.string()) == 0);
    return e.message();
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Writes what a decoder of `config` holds, after `change` had its way with the list.
template <typename Change>
void write_changed(const fs::path& dir, const arch::ModelConfig& config, Change change) {
  OwnedDecoder owned(config, single_rank());
  init_weights(owned.decoder, 1);
  std::vector<tensor::TensorView> views;
  for (std::size_t i = 0; i < owned.decoder.parameters().size(); ++i) {
    views.push_back({owned.decoder.layout().entries[i].parameter.full,
                     static_cast<const std::byte*>(owned.decoder.parameters()[i].value.data_ptr())});
  }
  change(views);
  tensor::write_safetensors(dir / "model.safetensors", views);
}

}  // namespace

TEST_CASE("saved weights load back bit by bit, in one file or in shards with an index") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const uint64_t shard_bytes : {uint64_t{1} << 30, uint64_t{40'000}}) {
      TempDir dir;
      OwnedDecoder saved(small_config(), single_rank(), dtype);
      init_weights(saved.decoder, 77);
      save_weights(saved.decoder, dir.path(), shard_bytes);
      CHECK(fs::exists(dir.path() / "model.safetensors") == (shard_bytes > 40'000));
      CHECK(fs::exists(dir.path() / "model.safetensors.index.json") == (shard_bytes == 40'000));
      const arch::ModelConfig config = arch::read_config(dir.path());
      CHECK(config.dtype == tensor::dtype_name(dtype));
      OwnedDecoder loaded(config, single_rank(), dtype);
      load_weights(loaded.decoder, dir.path());
      CHECK(same_weights(saved.decoder, loaded.decoder));
    }
  }
}

TEST_CASE("a sharded save into a folder with an older single file wins over it") {
  TempDir dir;
  OwnedDecoder first(small_config(), single_rank());
  init_weights(first.decoder, 1);
  save_weights(first.decoder, dir.path());
  init_weights(first.decoder, 2);
  save_weights(first.decoder, dir.path(), 40'000);
  OwnedDecoder loaded(small_config(), single_rank());
  load_weights(loaded.decoder, dir.path());
  CHECK(same_weights(first.decoder, loaded.decoder));
}

TEST_CASE("bfloat16 and float16 checkpoints are converted to the decoder's float32") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    TempDir dir;
    OwnedDecoder half(small_config(), single_rank(), dtype);
    init_weights(half.decoder, 77);
    save_weights(half.decoder, dir.path());
    OwnedDecoder loaded(small_config(), single_rank());
    load_weights(loaded.decoder, dir.path());
    for (std::size_t i = 0; i < loaded.decoder.parameters().size(); ++i) {
      CHECK(loaded.decoder.parameters()[i].value.equal(half.decoder.parameters()[i].value.to(torch::kFloat32)));
    }
  }
}

TEST_CASE("missing, surplus, misshapen and integer tensors are refused by name") {
  TempDir dir;
  const arch::ModelConfig config = small_config();
  write_changed(dir.path(), config, [](auto& views) { views.pop_back(); });
  CHECK(has(refusal(config, dir.path()), "tensors are missing: lm_head.weight"));
  write_changed(dir.path(), config, [](auto& views) {
    views.push_back(views.back());
    views.back().info.name = "model.layers.7.extra";
  });
  CHECK(has(refusal(config, dir.path()), "no place for: model.layers.7.extra"));
  write_changed(dir.path(), config, [](auto& views) { views.back().info.shape = {64, 29}; });
  CHECK(has(refusal(config, dir.path()), "lm_head.weight: expected shape [29, 64], found [64, 29]"));
  write_changed(dir.path(), config, [](auto& views) { views.back().info.dtype = DType::i32; });
  CHECK(has(refusal(config, dir.path()), "lm_head.weight: expected floating-point weights, found int32"));
}

TEST_CASE("a head stored beside tied embeddings and old rotary tables are ignored") {
  TempDir dir;
  arch::ModelConfig tied = small_config();
  tied.tie_word_embeddings = true;
  write_changed(dir.path(), tied, [](auto& views) {
    views.push_back(views.front());
    views.back().info.name = "lm_head.weight";
    views.push_back(views.front());
    views.back().info.name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  });
  CHECK(refusal(tied, dir.path()) == "loaded");
}

TEST_CASE("a folder without weights and a bad index are refused") {
  TempDir dir;
  const arch::ModelConfig config = small_config();
  const fs::path index = dir.path() / "model.safetensors.index.json";
  CHECK(has(refusal(config, dir.path()), "neither model.safetensors nor model.safetensors.index.json"));
  write_file_atomic(index, "{");
  CHECK(has(refusal(config, dir.path()), "not JSON"));
  write_file_atomic(index, R"({"weight_map": 3})");
  CHECK(has(refusal(config, dir.path()), "weight_map"));
  write_file_atomic(index, R"({"weight_map": {"lm_head.weight": "../model.safetensors"}})");
  CHECK(has(refusal(config, dir.path()), "expected a file name"));
}
