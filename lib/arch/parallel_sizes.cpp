#include "arch/parallel_sizes.hpp"

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::arch {
namespace {

std::string cut_fault(int64_t units, const char* what, int64_t size) {
  return std::to_string(units) + " " + what + " cannot be cut over " + std::to_string(size) + " tensor-parallel ranks";
}

}  // namespace

std::string tensor_parallel_fault(const ModelConfig& config, int64_t size) {
  const int64_t kv_heads = config.num_key_value_heads;
  if (config.num_attention_heads % size != 0) return cut_fault(config.num_attention_heads, "attention heads", size);
  if (kv_heads % size != 0 && size % kv_heads != 0) return cut_fault(kv_heads, "key/value heads", size);
  if (config.intermediate_size % size != 0) return cut_fault(config.intermediate_size, "intermediate rows", size);
  return "";
}

std::string pipeline_parallel_fault(const ModelConfig& config, int64_t size) {
  const int64_t layers = config.num_hidden_layers;
  if (size <= layers) return "";
  return std::to_string(layers) + " layers cannot be cut into " + std::to_string(size) + " pipeline stages";
}

std::vector<int64_t> legal_tensor_parallel(const ModelConfig& config) {
  std::vector<int64_t> legal = divisors(config.num_attention_heads);
  std::erase_if(legal, [&config](int64_t size) { return !tensor_parallel_fault(config, size).empty(); });
  return legal;
}

void require_tensor_parallel(const ModelConfig& config, int64_t size) {
  const std::string fault = tensor_parallel_fault(config, size);
  if (fault.empty()) return;
  std::vector<std::string> legal;
  for (const int64_t one : legal_tensor_parallel(config)) legal.push_back(std::to_string(one));
  throw Error(ErrorKind::refused, fault, "use a tensor-parallel size of " + join(legal, ", "));
}

void require_pipeline_parallel(const ModelConfig& config, int64_t size) {
  const std::string fault = pipeline_parallel_fault(config, size);
  if (fault.empty()) return;
  throw Error(ErrorKind::refused, fault,
              "use a pipeline-parallel size of at most " + std::to_string(config.num_hidden_layers));
}

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t one = 1; one <= number / one; ++one) {
    if (number % one != 0) continue;
    small.push_back(one);
    if (one != number / one) large.push_back(number / one);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

}  // namespace vime::arch
