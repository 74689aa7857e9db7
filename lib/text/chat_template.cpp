#include "text/chat_template.hpp"

#include "text/component_json.hpp"
#include "text/jinja_evaluator.hpp"
#include "text/jinja_parser.hpp"
#include "text/tokenizer_files.hpp"
#include "text/utf8.hpp"

namespace vime::text {

struct ChatTemplate::Parts {
  jinja::Block body;
  std::map<std::string, std::string> tokens;
};

ChatTemplate::ChatTemplate(const std::string& source, std::map<std::string, std::string> tokens) {
  auto parts = std::make_unique<Parts>();
  try {
    parts->body = jinja::parse(source);
  } catch (const Error& error) {
    throw error.within("chat template");
  }
  parts->tokens = std::move(tokens);
  parts_ = std::move(parts);
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const Json& messages, bool add_generation_prompt, const Json& variables,
                                 std::chrono::system_clock::time_point now) const {
  if (!variables.is_object()) throw Error(ErrorKind::refused, "chat template: the variables must be an object");
  jinja::Evaluator::Variables all{{"tools", jinja::None{}}, {"documents", jinja::None{}}};
  for (const auto& [name, token] : parts_->tokens) all.emplace_back(name, valid_utf8(token));
  try {
    for (const auto& [name, value] : variables.items()) all.emplace_back(name, jinja::from_json(value));
    all.emplace_back("messages", jinja::from_json(messages));
  } catch (const Error& error) {
    throw error.within("chat template");
  }
  all.emplace_back("add_generation_prompt", add_generation_prompt);
  jinja::Evaluator evaluator(all, now);
  try {
    return evaluator.render(parts_->body);
  } catch (const jinja::Raised& raised) {
    throw Error(ErrorKind::refused, raised.message,
                "the chat template says so in line " + std::to_string(evaluator.line()));
  } catch (const Error& error) {
    throw error.within("chat template, line " + std::to_string(evaluator.line()));
  }
}

namespace {

// The variables that transformers gives its templates: every special token that the files name.
std::map<std::string, std::string> template_tokens(const Json& config) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : config.items()) {
    if (key.size() < 6 || key.compare(key.size() - 6, 6, "_token") != 0) continue;
    const Json* text = value.is_object() ? optional_member(value, "content") : &value;
    if (text != nullptr && text->is_string()) tokens[key] = text->get<std::string>();
  }
  return tokens;
}

std::string named_template(const Json& list, const std::string& where) {
  for (const Json& entry : list) {
    if (text_member(entry, "name", where) == "default") return text_member(entry, "template", where);
  }
  throw Error(ErrorKind::refused, where + ": no template is named \"default\"");
}

}  // namespace

std::shared_ptr<const ChatTemplate> load_chat_template(const fs::path& model_dir) {
  const Json config = read_json_object(model_dir, "tokenizer_config.json");
  std::map<std::string, std::string> tokens = template_tokens(config);
  for (const auto& [name, token] : template_tokens(read_json_object(model_dir, "special_tokens_map.json"))) {
    tokens.emplace(name, token);
  }
  fs::path path = model_dir / "chat_template.jinja";
  std::string source;
  if (fs::exists(path)) {
    source = read_file(path);
  } else {
    path = model_dir / "tokenizer_config.json";
    const Json* found = optional_member(config, "chat_template");
    if (found == nullptr) return nullptr;
    const std::string where = path.string() + ": chat_template";
    source = found->is_array() ? named_template(*found, where) : text_member(config, "chat_template", path.string());
  }
  try {
    return std::make_shared<const ChatTemplate>(source, std::move(tokens));
  } catch (const Error& error) {
    throw error.within(path.string());
  }
}

}  // namespace vime::text
