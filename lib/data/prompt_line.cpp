#include "data/prompt_line.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/strings.hpp"

namespace vime::data {
namespace {

std::string in_quotes(const std::string& text) {
  return Json(text.substr(0, 60)).dump(-1, ' ', false, Json::error_handler_t::ignore);
}

// What one chat message lacks; "" when it is one.
std::string message_fault(const Json& message) {
  if (!message.is_object()) return "expected an object with role and content";
  const auto role = message.find("role");
  if (role == message.end()) return "\"role\" is missing";
  if (!role->is_string() || role->get_ref<const std::string&>().empty()) return "expected a text in \"role\"";
  const auto content = message.find("content");
  if (content == message.end()) return "\"content\" is missing";
  if (content->is_string()) return "";
  const bool parts = content->is_array() && !content->empty() &&
                     std::all_of(content->begin(), content->end(), [](const Json& part) { return part.is_object(); });
  return parts ? "" : "expected a text or a list of parts in \"content\"";
}

}  // namespace

std::string PromptLines::read(std::string_view line, Prompt& prompt) {
  std::string wrong = read_json_object(line, members_);
  std::string reward_type;
  if (wrong.empty()) wrong = read_input(prompt);
  if (wrong.empty()) wrong = read_label(prompt);
  if (wrong.empty()) wrong = read_metadata(prompt, reward_type);
  if (wrong.empty()) wrong = read_reward_type(prompt, reward_type);
  return wrong;
}

const JsonMember* PromptLines::find(const std::string& key) const {
  for (const JsonMember& member : members_) {
    if (member.key == key) return &member;
  }
  return nullptr;
}

std::string PromptLines::missing(const std::string& key) const {
  std::vector<std::string> keys;
  for (const JsonMember& member : members_) keys.push_back(member.key);
  constexpr size_t kListed = 8;
  const std::string near = keys.size() <= 100 ? nearest_name(key, keys) : "";
  std::string text = "the key " + in_quotes(key) + " is missing";
  if (!near.empty()) return text + " (did you mean " + in_quotes(near) + "?)";
  if (keys.empty()) return text + "; the object is empty";
  const bool more = keys.size() > kListed;
  keys.resize(std::min(keys.size(), kListed));
  for (std::string& one : keys) one = in_quotes(one);
  return text + "; found " + join(keys, ", ") + (more ? ", ..." : "");
}

std::string PromptLines::read_input(Prompt& prompt) {
  const JsonMember* input = find(options_.input_key);
  if (input == nullptr) return missing(options_.input_key);
  if (input->is_list()) return read_messages(*input, prompt);
  if (!input->is_string()) {
    return in_quotes(options_.input_key) + ": expected a text or a list of chat messages, found " +
           describe_json(input->value);
  }
  std::string text = json_text(input->value);
  if (text.empty()) return in_quotes(options_.input_key) + ": expected a text, found an empty one";
  if (!options_.apply_chat_template) {
    prompt.text = std::move(text);
    return "";
  }
  const Json messages = Json::array({Json{{"role", "user"}, {"content", std::move(text)}}});
  prompt.messages = messages.dump();
  if (options_.render) prompt.text = options_.render(messages);
  return "";
}

std::string PromptLines::read_messages(const JsonMember& input, Prompt& prompt) {
  if (!options_.apply_chat_template) {
    return in_quotes(options_.input_key) +
           ": expected a text, found a list; chat messages need data.apply_chat_template: true";
  }
  const Json messages = parse_json(std::string(input.value));
  if (messages.empty()) return in_quotes(options_.input_key) + ": expected chat messages, found an empty list";
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string fault = message_fault(messages[i]);
    if (!fault.empty()) return in_quotes(options_.input_key) + ", message " + std::to_string(i + 1) + ": " + fault;
  }
  prompt.messages = input.value;
  if (options_.render) prompt.text = options_.render(messages);
  return "";
}

std::string PromptLines::read_label(Prompt& prompt) {
  if (options_.label_key.empty()) return "";
  const JsonMember* label = find(options_.label_key);
  if (label == nullptr) return missing(options_.label_key);
  if (label->is_null()) return in_quotes(options_.label_key) + ": expected a label, found null";
  prompt.label = label->is_string() ? json_text(label->value) : std::string(label->value);
  return "";
}

std::string PromptLines::read_metadata(Prompt& prompt, std::string& reward_type) {
  const JsonMember* metadata = find(options_.metadata_key);
  if (metadata == nullptr || metadata->is_null()) return "";
  if (!metadata->is_object()) {
    return in_quotes(options_.metadata_key) + ": expected an object, found " + describe_json(metadata->value);
  }
  prompt.metadata = metadata->value;
  std::vector<JsonMember> inner;
  VIME_CHECK(read_json_object(metadata->value, inner).empty(), "metadata was read before");
  for (const JsonMember& member : inner) {
    if (member.key != "rm_type" || member.is_null()) continue;
    if (!member.is_string()) {
      return in_quotes(options_.metadata_key) + ", \"rm_type\": expected a text, found " + describe_json(member.value);
    }
    reward_type = json_text(member.value);
  }
  return "";
}

std::string PromptLines::read_reward_type(Prompt& prompt, const std::string& from_metadata) {
  prompt.reward_type = from_metadata;
  const JsonMember* own = find(options_.reward_key);
  if (own != nullptr && !own->is_null()) {
    if (!own->is_string()) {
      return in_quotes(options_.reward_key) + ": expected a text, found " + describe_json(own->value);
    }
    prompt.reward_type = json_text(own->value);
    if (!from_metadata.empty() && from_metadata != prompt.reward_type) {
      return in_quotes(options_.reward_key) + " is " + in_quotes(prompt.reward_type) + ", but rm_type of " +
             in_quotes(options_.metadata_key) + " is " + in_quotes(from_metadata);
    }
  }
  const std::vector<std::string>& known = options_.reward_types;
  const bool accepted = prompt.reward_type.empty() || known.empty() ||
                        std::find(known.begin(), known.end(), prompt.reward_type) != known.end();
  if (accepted) return "";
  const std::string near = nearest_name(prompt.reward_type.substr(0, 64), known);
  return "reward type: expected one of " + join(known, ", ") + ", found " + in_quotes(prompt.reward_type) +
         (near.empty() ? "" : " (did you mean " + in_quotes(near) + "?)");
}

}  // namespace vime::data
