// One prompt of a data set, as plain data.
#pragma once

#include <cstdint>
#include <string>

namespace vime::data {

struct Prompt {
  int64_t id = 0;                // unique within the task, the same in every run
  std::string text = {};         // what the model reads; empty while `messages` wait to be rendered
  std::string label = {};        // the right answer; one that is no JSON string stands here as its JSON text
  std::string messages = {};     // JSON text of chat messages; empty for a prompt of plain text
  std::string metadata = {};     // JSON text of an object; empty: none
  std::string reward_type = {};  // of this prompt alone; empty: the experiment's
  int64_t line = 0;              // in its file, from 1; 0: built in
  int32_t source = 0;            // its file or built-in set: index into LoadOptions::prompt_data
  bool operator==(const Prompt&) const = default;
};

}  // namespace vime::data
