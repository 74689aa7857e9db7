// Pickles by hand, opcode for opcode as the protocol's description has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "checkpoints.hpp"

namespace vime::stand_in {

std::string base64(const std::string& bytes);

struct Handle {
  std::string bytes;  // 64, or a version and 'c' before them
  std::string dtype = "uint8";
  std::vector<int64_t> shape;
  int64_t storage_bytes = 0;
  int64_t offset = 0;  // of the storage, bytes
};
// The 15 arguments of rebuild_cuda_tensor as a tuple.
std::string pickled_arguments(const Handle& handle);
// (rebuild_cuda_tensor, arguments)
std::string pickled_call(const Handle& handle);
// {uuid: value, ...}, without header and stop.
std::string pickled_dict(const std::vector<std::string>& uuids, const std::string& value);
std::string pickled_list(const std::vector<std::string>& items);
std::string whole_pickle(const std::string& value);

// The unique id's pickle around 128 bytes that begin with this text.
std::string pickled_unique_id(const std::string& text);

// names, dtype_names and shapes.
Json update_lists(const Checkpoint& checkpoint, std::size_t first, std::size_t count);

}  // namespace vime::stand_in
