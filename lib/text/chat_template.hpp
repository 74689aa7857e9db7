// The chat template of a model: messages into the text that the model was trained to continue. The template language
// is the part of Jinja that such templates use, with transformers' settings (trim_blocks, lstrip_blocks, tojson without
// escapes); anything beyond is refused by name. Immutable; any thread; render takes at most about a second.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "base/files.hpp"
#include "base/json.hpp"

namespace vime::text {

class ChatTemplate {
 public:
  // `tokens`: "bos_token", "eos_token"... as the template's variables. Error{refused} names the line and what is wrong
  // there or not supported.
  explicit ChatTemplate(const std::string& source, std::map<std::string, std::string> tokens = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `messages` is a list of {"role", "content", ...}. `variables` is an object whose members the template sees as they
  // are ("tools", "enable_thinking"); "tools" and "documents" are none unless given. Where the template calls
  // raise_exception: Error{refused} with the template's own message. `now` is for strftime_now.
  std::string render(const Json& messages, bool add_generation_prompt, const Json& variables = Json::object(),
                     std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

// <model_dir>/chat_template.jinja, else "chat_template" of tokenizer_config.json (a text, or a list of {"name",
// "template"} of which "default" is taken). nullptr when there is neither.
std::shared_ptr<const ChatTemplate> load_chat_template(const fs::path& model_dir);

}  // namespace vime::text
