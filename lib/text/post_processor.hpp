// The "post_processor" of tokenizer.json: the special tokens around an encoded text. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace vime::text {

class PostProcessor {
 public:
  // TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (changes no ids), Sequence, null. Only the part
  // for a single text is read. Error{refused} names any other.
  PostProcessor(const Json& component, const std::string& where);

  std::vector<int64_t> with_special_tokens(std::vector<int64_t> ids) const;
  // The ids of all special tokens it puts in.
  const std::vector<int64_t>& special_ids() const { return special_ids_; }

 private:
  struct Step {
    std::vector<int64_t> before;
    std::vector<int64_t> after;
    int64_t texts = 0;  // how often the text itself comes, with `between` in the gaps
    std::vector<std::vector<int64_t>> between;
  };
  void read(const Json& component, const std::string& where, int depth);
  void read_template(const Json& component, const std::string& where);
  void read_pair(const Json& component, const std::string& where);

  std::vector<Step> steps_;
  std::vector<int64_t> special_ids_;
};

}  // namespace vime::text
