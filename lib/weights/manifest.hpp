// The list of an update's tensors on its way to an engine, and what both ends keep of it. A model of many experts has
// tens of thousands of tensors: megabytes of names and shapes, the same in every push. They are sent once per engine
// lifetime with a key, "manifest"; afterwards the key stands for them. Of vime's own engines only.
//   {"names", "dtype_names", "shapes", "tensor_offsets"}   as in bucket.hpp, of all buckets one after the other
//   "chunks": [[tensors, bytes], ...]   where the tensors come in several messages; offsets count from their message
//   "manifest": "<key>"                 alone, or with the lists that it is to stand for
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "weights/bucket.hpp"

namespace vime::weights {

// The sender's: which manifests an engine has.
class SentManifests {
 public:
  // update_info for these buckets; several of them are chunks.
  Json update_info(std::span<const Bucket> buckets);
  // The engine took the update that was made last.
  void arrived() { known_.insert(last_); }
  void forget() { known_.clear(); }  // the engine is a new one

 private:
  std::set<std::string> known_;
  std::string last_;
};

// The receiver's.
class KeptManifests {
 public:
  // The buckets that an update consists of; they stay where they are until forget() when they have a key.
  // Error{refused} for a key that was never sent, or is not that of its lists.
  const std::vector<Bucket>& buckets(const Json& update_info);
  void forget() { kept_.clear(); }

 private:
  std::map<std::string, std::vector<Bucket>> kept_;
  std::vector<Bucket> last_;  // without a key
};

}  // namespace vime::weights
