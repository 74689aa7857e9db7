#include "support/vllm/info_reader.hpp"

#include <algorithm>

#include "base/strings.hpp"
#include "support/vllm/failures.hpp"

namespace vime::stand_in {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string missing_text(const std::vector<std::string>& missing) {
  std::vector<std::string> quoted;
  for (const std::string& name : missing) quoted.push_back("'" + name + "'");
  const std::string last = quoted.back();
  quoted.pop_back();
  const std::string list = quoted.empty() ? last : join(quoted, ", ") + (quoted.size() > 1 ? ", and " : " and ") + last;
  return "missing " + std::to_string(missing.size()) + " required positional argument" +
         (missing.size() > 1 ? "s: " : ": ") + list;
}

const Json& list_of(const Json& info, const char* key) {
  const Json& list = info.at(key);
  if (!list.is_array()) throw WorkerError(std::string("`") + key + "` is no list: " + list.dump());
  return list;
}

tensor::DType dtype_named(const Json& name) {
  if (!name.is_string()) throw WorkerError("attribute name must be string, found " + name.dump());
  try {
    return tensor::parse_dtype_name(name.get<std::string>());
  } catch (const Error&) {
    throw WorkerError("module 'torch' has no attribute '" + name.get<std::string>() + "'");
  }
}

}  // namespace

void check_info(const Json& info, const InfoClass& expected) {
  const std::string where = "Invalid " + expected.what + " for " + expected.engine + ": ";
  if (!info.is_object()) throw WorkerError(where + "argument after ** must be a mapping, not " + info.type_name());
  for (const auto& [key, value] : info.items()) {
    if (!contains(expected.required, key) && !contains(expected.optional, key))
      throw WorkerError(where + expected.name + ".__init__() got an unexpected keyword argument '" + key + "'");
  }
  std::vector<std::string> missing;
  for (const std::string& key : expected.required) {
    if (!info.contains(key)) missing.push_back(key);
  }
  if (!missing.empty()) throw WorkerError(where + expected.name + ".__init__() " + missing_text(missing));
}

bool info_flag(const Json& info, const char* key, bool otherwise) {
  if (!info.contains(key)) return otherwise;
  if (!info[key].is_boolean()) throw WorkerError(std::string(key) + ": expected a bool, found " + info[key].dump());
  return info[key].get<bool>();
}

int64_t info_integer(const Json& info, const char* key, int64_t otherwise) {
  if (!info.contains(key)) return otherwise;
  if (!info[key].is_number_integer())
    throw WorkerError(std::string(key) + ": expected an int, found " + info[key].dump());
  return info[key].get<int64_t>();
}

std::vector<tensor::TensorInfo> info_tensors(const Json& info) {
  const Json& names = list_of(info, "names");
  for (const char* key : {"dtype_names", "shapes"}) {
    const std::size_t count = list_of(info, key).size();
    if (count == names.size()) continue;
    throw WorkerError(std::string("`") + key + "` should be of the same size as `names`: got " + std::to_string(count) +
                      " and " + std::to_string(names.size()));
  }
  std::vector<tensor::TensorInfo> tensors;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!names[i].is_string()) throw WorkerError("`names`: expected str, found " + names[i].dump());
    tensor::Shape shape;
    for (const Json& size : info["shapes"][i]) {
      if (!size.is_number_integer() || size.get<int64_t>() < 0)
        throw WorkerError("`shapes`: expected a size, found " + size.dump());
      shape.push_back(size.get<int64_t>());
    }
    tensors.push_back({names[i].get<std::string>(), dtype_named(info["dtype_names"][i]), std::move(shape)});
  }
  return tensors;
}

}  // namespace vime::stand_in
