// Checkpoints are free of the layout that wrote them.
#include "torch_doctest.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/json.hpp"
#include "layouts.hpp"

using namespace vime;
using namespace vime::trainer;

namespace {

constexpr const char* kFiles[] = {"model/model.safetensors", "model/config.json", "trainer/optimizer.safetensors",
                                  "trainer/checksums.json"};

// Trains from `from` ("" = from the start) for some steps and saves.
void train_and_save(RankOptions options, const std::string& from, int steps, const fs::path& batch,
                    const fs::path& into) {
  options.checkpoint_dir = from;
  run_layout(options, [&](TrainerRank& rank) {
    for (int step = 0; step < steps; ++step) rank.train(batch.string());
    rank.save(into.string());
  });
}

double largest_difference(const fs::path& a, const fs::path& b) {
  const tensor::SafetensorsFile first(a), second(b);
  REQUIRE(first.tensors().size() == second.tensors().size());
  double largest = 0.0;
  for (const tensor::TensorView& view : first.tensors()) {
    const tensor::TensorView& other = second.find(view.info.name);
    REQUIRE(other.info.shape == view.info.shape);
    const auto* x = reinterpret_cast<const float*>(view.data);
    const auto* y = reinterpret_cast<const float*>(other.data);
    for (int64_t i = 0; i < tensor::element_count(view.info.shape); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("training goes on from a checkpoint under any other layout as if it had never stopped") {
  const arch::ModelConfig config = parallel_config(true);
  const TempDir folder;
  const fs::path batch = folder.path() / "batch.safetensors";
  rollout::write_train_batch(batch, parallel_batch());
  train_and_save(options_of({}, config), "", 3, batch, folder.path() / "unbroken");
  const LayoutOfTest layouts[] = {{2, 2, 2, 1}, {1, 1, 1, 2}, {4, 1, 1, 2}, {1, 4, 1, 1}, {1, 1, 4, 1}, {1, 1, 1, 1}};
  for (size_t i = 0; i < std::size(layouts); ++i) {
    const LayoutOfTest& first = layouts[i];
    const LayoutOfTest& second = layouts[(i + 1) % std::size(layouts)];
    CAPTURE(first.name());
    CAPTURE(second.name());
    const fs::path at_one = folder.path() / ("one" + std::to_string(i));
    const fs::path at_three = folder.path() / ("three" + std::to_string(i));
    train_and_save(options_of(first, config), "", 1, batch, at_one);
    train_and_save(options_of(second, config), at_one.string(), 2, batch, at_three);
    // An update is at most lr = 0.05; noise of 1e-7 in gradients that eps = 0.01 damps moves a weight by 1e-6 at most.
    CHECK(largest_difference(at_three / "model/model.safetensors", folder.path() / "unbroken/model/model.safetensors") <
          5e-6);
    // Read and written under another layout it is the same file, moments included.
    const fs::path again = folder.path() / ("again" + std::to_string(i));
    train_and_save(options_of(second, config), at_one.string(), 0, batch, again);
    for (const char* file : kFiles) {
      CAPTURE(file);
      CHECK(read_file(again / file) == read_file(at_one / file));
    }
  }
}

TEST_CASE("a checkpoint whose bytes changed is refused under every layout, by the rank that looked at them") {
  const arch::ModelConfig config = parallel_config(true);
  const TempDir folder;
  const fs::path batch = folder.path() / "batch.safetensors";
  rollout::write_train_batch(batch, parallel_batch());
  train_and_save(options_of({}, config), "", 1, batch, folder.path() / "saved");
  for (const char* file : {"model/model.safetensors", "trainer/optimizer.safetensors"}) {
    const std::string before = read_file(folder.path() / "saved" / file);
    std::string changed = before;
    changed[changed.size() - 3] = static_cast<char>(changed[changed.size() - 3] ^ 1);
    write_file_atomic(folder.path() / "saved" / file, changed);
    for (const LayoutOfTest& layout : {LayoutOfTest{}, LayoutOfTest{2, 2, 1, 1}}) {
      CHECK_THROWS_WITH_AS(train_and_save(options_of(layout, config), (folder.path() / "saved").string(), 0, batch,
                                          folder.path() / "never"),
                           doctest::Contains("the contents are not those that were saved"), Error);
    }
    write_file_atomic(folder.path() / "saved" / file, before);
  }
  // A checksum that is missing leaves its tensor without a check, and a tensor that is missing its checksum.
  const fs::path sums = folder.path() / "saved/trainer/checksums.json";
  const std::string before = read_file(sums);
  for (const bool missing : {true, false}) {
    Json json = parse_json(before, "checksums");
    if (missing) json["checksums"].erase("model.norm.weight");
    if (!missing) json["checksums"]["model.other.weight"] = "00000000000000aa";
    write_file_atomic(sums, json.dump());
    for (const LayoutOfTest& layout : {LayoutOfTest{}, LayoutOfTest{2, 2, 1, 1}}) {
      CHECK_THROWS_WITH_AS(train_and_save(options_of(layout, config), (folder.path() / "saved").string(), 0, batch,
                                          folder.path() / "never"),
                           doctest::Contains("the contents are not those that were saved"), Error);
    }
  }
}
