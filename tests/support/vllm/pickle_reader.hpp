// Python pickles, protocols 2 to 5, as far as weight payloads need them: what CPython's Unpickler would accept is read
// into a tree, everything else is WorkerError with Python's kind of text. Nothing is ever called: a REDUCE becomes a
// node. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vime::stand_in {

struct PickleValue;
using PickleItems = std::vector<PickleValue>;

struct PickleValue {
  enum class Kind { none, boolean, integer, text, bytes, tuple, list, dict, global, call };
  Kind kind = Kind::none;
  int64_t integer = 0;  // of a boolean too
  std::string text;     // of text and bytes; of a global "module name"
  // Of a tuple, list, dict (key, value, key, value, ...) or call (callable, arguments). Shared, as memo references are.
  std::shared_ptr<PickleItems> items;

  bool is(Kind wanted) const { return kind == wanted; }
  const PickleItems& children() const { return *items; }
  // Python's name of its type: "int", "bytes", ...
  std::string type_name() const;
};

PickleValue read_pickle(std::string_view bytes);

// Base64 as Python's b64decode reads it, which skips characters of no meaning. WorkerError "Incorrect padding".
std::string decode_base64(std::string_view text);

}  // namespace vime::stand_in
