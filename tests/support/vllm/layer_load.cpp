#include "support/vllm/layer_load.hpp"

#include <algorithm>
#include <cstring>

#include "support/vllm/failures.hpp"

namespace vime::stand_in {
namespace {

// The module whose kernel tensor holds a checkpoint's parameter.
std::string module_name(const std::string& parameter) {
  std::string name = parameter.substr(0, parameter.rfind('.'));
  for (const auto& [part, whole] :
       {std::pair{"q_proj", "qkv_proj"}, std::pair{"k_proj", "qkv_proj"}, std::pair{"v_proj", "qkv_proj"},
        std::pair{"gate_proj", "gate_up_proj"}, std::pair{"up_proj", "gate_up_proj"}}) {
    const std::string last = std::string(".") + part;
    if (name.ends_with(last)) return name.substr(0, name.size() - last.size() + 1) + whole;
  }
  return name;
}

std::string size_text(const tensor::Shape& shape) {
  return "torch.Size(" + tensor::shape_text(shape) + ")";
}

}  // namespace

LayerLoad::LayerLoad(Model& model) : model_(model) {
  std::map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const tensor::TensorInfo& info = model.parameters()[i].info;
    const auto [place, added] = index_of.emplace(module_name(info.name), modules_.size());
    if (added) modules_.emplace_back();
    module_of_.push_back(place->second);
    modules_[place->second].parameters.push_back(i);
    modules_[place->second].elements += tensor::element_count(info.shape);
  }
}

void LayerLoad::start(LoadFault fault) {
  fault_ = fault;
  taken_ = 0;
  for (Module& module : modules_) {
    if (module.loading) continue;
    module.loading = true;
    module.loaded = 0;
    module.buffered.clear();
  }
}

std::size_t LayerLoad::find(const tensor::TensorView& tensor) const {
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    const tensor::TensorInfo& own = model_.parameters()[i].info;
    if (own.name != tensor.info.name) continue;
    if (own.shape == tensor.info.shape) return i;
    throw WorkerError("Attempted to load weight (" + size_text(tensor.info.shape) + ") into parameter (" +
                      size_text(own.shape) + ")");
  }
  throw WorkerError("There is no module or parameter named '" + tensor.info.name + "' in " +
                    model_.config().architecture);
}

// What a worker makes of a tensor, planted faults included.
std::vector<std::byte> LayerLoad::bytes_of(const tensor::TensorView& tensor, std::size_t index) {
  const Parameter& parameter = model_.parameters()[index];
  std::vector<std::byte> bytes = Model::convert(tensor, parameter.info.dtype);
  const bool lost = fault_ == LoadFault::stale || (fault_ == LoadFault::half && taken_ % 2 == 1);
  if (lost) std::memcpy(bytes.data(), model_.weights() + parameter.offset, bytes.size());
  if (fault_ == LoadFault::swapped_rows && tensor.info.name.ends_with("gate_proj.weight")) {
    const auto rows = static_cast<std::size_t>(tensor.info.shape[0]);
    const auto half = static_cast<std::ptrdiff_t>(bytes.size() / rows * (rows / 2));
    std::rotate(bytes.begin(), bytes.begin() + half, bytes.end());
  }
  return bytes;
}

void LayerLoad::take(const tensor::TensorView& tensor) {
  if (tensor.info.name == "lm_head.weight" && model_.config().tie_word_embeddings) return;
  const std::size_t index = find(tensor);
  std::vector<std::byte> bytes = bytes_of(tensor, index);
  ++taken_;
  Module& module = modules_[module_of_[index]];
  if (!module.loading) return write(index, bytes);
  module.buffered[index] = std::move(bytes);
  module.loaded += tensor::element_count(tensor.info.shape);
  if (module.loaded >= module.elements) complete(module);
}

void LayerLoad::complete(Module& module) {
  for (const std::size_t index : module.parameters) {
    const auto found = module.buffered.find(index);
    std::vector<std::byte> nonsense;
    if (found == module.buffered.end()) {
      const tensor::TensorInfo& info = model_.parameters()[index].info;
      const std::vector<float> values(static_cast<std::size_t>(tensor::element_count(info.shape)), 0.25f);
      nonsense = Model::convert(
          {{info.name, tensor::DType::f32, info.shape}, reinterpret_cast<const std::byte*>(values.data())}, info.dtype);
    }
    write(index, found == module.buffered.end() ? nonsense : found->second);
  }
  module.loading = false;
  module.buffered.clear();
}

void LayerLoad::finish() {
  for (Module& module : modules_) {
    if (module.loading && module.loaded > 0) complete(module);
    module.loading = false;
  }
}

bool LayerLoad::is_on_meta() const {
  return std::any_of(modules_.begin(), modules_.end(), [](const Module& module) { return module.loading; });
}

void LayerLoad::fill_with_nonsense() {
  for (Module& module : modules_) {
    module.buffered.clear();
    complete(module);
  }
}

void LayerLoad::write(std::size_t index, const std::vector<std::byte>& bytes) {
  std::memcpy(model_.weights() + model_.parameters()[index].offset, bytes.data(), bytes.size());
}

}  // namespace vime::stand_in
