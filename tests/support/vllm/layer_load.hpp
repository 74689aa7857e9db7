// vLLM's layer-wise reload, as far as it shows: from start to finish the parameters of modules that are not complete
// are on the meta device. A module (q, k and v are one, gate and up another) is written as soon as as many elements
// have come as it holds; at finish one that got nothing keeps its old weights, and one that got a part is written with
// nonsense where nothing came. Owned by the engine's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/vllm/model.hpp"

namespace vime::stand_in {

// What goes wrong unseen while weights are loaded (faults.hpp).
enum class LoadFault { none, stale, half, swapped_rows };

class LayerLoad {
 public:
  explicit LayerLoad(Model& model);

  // Modules that an earlier session left unfinished go on where they stood, as in vLLM.
  void start(LoadFault fault = LoadFault::none);
  // WorkerError for a name or a shape that is not the model's.
  void take(const tensor::TensorView& tensor);
  void finish();

  // Whether a forward pass would meet a parameter on the meta device.
  bool is_on_meta() const;
  // Memory that was taken and not filled again: what sleeping at level 2 leaves.
  void fill_with_nonsense();

 private:
  struct Module {
    std::vector<std::size_t> parameters;  // indices
    int64_t elements = 0;
    bool loading = false;
    int64_t loaded = 0;  // elements
    std::map<std::size_t, std::vector<std::byte>> buffered;
  };
  void complete(Module& module);
  std::vector<std::byte> bytes_of(const tensor::TensorView& tensor, std::size_t index);
  std::size_t find(const tensor::TensorView& tensor) const;
  void write(std::size_t index, const std::vector<std::byte>& bytes);

  Model& model_;
  std::vector<Module> modules_;
  std::vector<std::size_t> module_of_;  // of each parameter
  LoadFault fault_ = LoadFault::none;
  int64_t taken_ = 0;
};

}  // namespace vime::stand_in
