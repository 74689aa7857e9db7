// "Metaspace" of tokenizer.json: spaces as a visible character, before the model and back again behind it.
// Immutable; any thread.
#pragma once

#include <memory>
#include <string>

#include "text/pretokenizer.hpp"

namespace vime::text {

struct MetaspaceOptions {
  std::string replacement = "\xe2\x96\x81";  // one character
  enum class Prepend { always, first, never } prepend = Prepend::always;
  bool split = true;
};

MetaspaceOptions metaspace_options(const Json& component, const std::string& where);
std::unique_ptr<const PreTokenizer> make_metaspace_pre_tokenizer(const Json& component, const std::string& where);

}  // namespace vime::text
