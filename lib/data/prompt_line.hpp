// One line of a JSONL file as a prompt. Pure but for the chat template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/json_object.hpp"
#include "data/prompts.hpp"

namespace vime::data {

class PromptLines {
 public:
  // `options` must outlive it.
  explicit PromptLines(const LoadOptions& options) : options_(options) {}

  // Fills text, messages, label, metadata and reward_type. Returns "", or what was expected and what was found; the
  // prompt is of no use then.
  std::string read(std::string_view line, Prompt& prompt);

 private:
  const JsonMember* find(const std::string& key) const;
  std::string missing(const std::string& key) const;
  std::string read_input(Prompt& prompt);
  std::string read_messages(const JsonMember& input, Prompt& prompt);
  std::string read_label(Prompt& prompt);
  std::string read_metadata(Prompt& prompt, std::string& reward_type);
  std::string read_reward_type(Prompt& prompt, const std::string& from_metadata);

  const LoadOptions& options_;
  std::vector<JsonMember> members_;  // of the line; kept for its memory
};

}  // namespace vime::data
