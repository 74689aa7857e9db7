// A JSON object splatted into one of vLLM's dataclasses: unknown and missing keys are Python's TypeError, wrapped as
// vLLM wraps it. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "tensor/tensor.hpp"

namespace vime::stand_in {

struct InfoClass {
  std::string name;    // "NCCLWeightTransferUpdateInfo"
  std::string engine;  // "NCCLWeightTransferEngine"
  std::string what;    // "init_info" or "update_info"
  std::vector<std::string> required;
  std::vector<std::string> optional;
};

// WorkerError "Invalid update_info for NCCLWeightTransferEngine: ...__init__() got an unexpected keyword argument 'x'".
void check_info(const Json& info, const InfoClass& expected);

bool info_flag(const Json& info, const char* key, bool otherwise);
int64_t info_integer(const Json& info, const char* key, int64_t otherwise);

// names, dtype_names and shapes. WorkerError for lists of other sizes, a dtype that torch does not have, a wrong type.
std::vector<tensor::TensorInfo> info_tensors(const Json& info);

}  // namespace vime::stand_in
