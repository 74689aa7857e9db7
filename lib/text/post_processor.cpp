#include "text/post_processor.hpp"

#include "text/component_json.hpp"

namespace vime::text {
namespace {

constexpr const char* kSupported = "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence";

int64_t id_number(const Json& value, const std::string& where) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > UINT32_MAX) {
    throw Error(ErrorKind::refused, where + ": expected a token id");
  }
  return value.get<int64_t>();
}

}  // namespace

PostProcessor::PostProcessor(const Json& component, const std::string& where) {
  read(component, where, 0);
}

void PostProcessor::read(const Json& component, const std::string& where, int depth) {
  if (component.is_null()) return;
  const std::string type = component_type(component, where);
  if (type == "ByteLevel") return;
  if (type == "TemplateProcessing") return read_template(component, where);
  if (type == "BertProcessing" || type == "RobertaProcessing") return read_pair(component, where);
  if (type != "Sequence") refuse_component(where, "post-processor \"" + type + "\"", kSupported);
  if (depth >= kMaxComponentDepth) refuse_component(where, "a Sequence this deep", "16 levels");
  size_t number = 0;
  for (const Json& part : list_member(component, "processors", where)) {
    read(part, where + ".processors[" + std::to_string(number++) + "]", depth + 1);
  }
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [1]}}}
void PostProcessor::read_template(const Json& component, const std::string& where) {
  Step step;
  std::vector<int64_t> pending;
  const Json* tokens = optional_member(component, "special_tokens");
  for (const Json& part : list_member(component, "single", where)) {
    if (optional_member(part, "Sequence") != nullptr) {
      if (text_member(*optional_member(part, "Sequence"), "id", where) != "A") {
        refuse_component(where, "a second text in \"single\"", "$A");
      }
      if (step.texts++ == 0) {
        step.before = std::move(pending);
      } else {
        step.between.push_back(std::move(pending));
      }
      pending.clear();
      continue;
    }
    const Json* special = optional_member(part, "SpecialToken");
    if (special == nullptr) refuse_component(where, "this part of a template", "Sequence, SpecialToken");
    const std::string name = text_member(*special, "id", where);
    const Json* token = tokens == nullptr ? nullptr : optional_member(*tokens, name);
    if (token == nullptr) throw Error(ErrorKind::refused, where + ".special_tokens: \"" + name + "\" is missing");
    for (const Json& id : list_member(*token, "ids", where)) pending.push_back(id_number(id, where));
    special_ids_.insert(special_ids_.end(), pending.begin(), pending.end());
  }
  (step.texts == 0 ? step.before : step.after) = std::move(pending);
  steps_.push_back(std::move(step));
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}
void PostProcessor::read_pair(const Json& component, const std::string& where) {
  const auto id_of = [&](const char* key) {
    const Json& pair = list_member(component, key, where);
    if (pair.size() != 2) throw Error(ErrorKind::refused, where + "." + key + ": expected a token and its id");
    return id_number(pair[1], where + "." + key);
  };
  Step step;
  step.texts = 1;
  step.before = {id_of("cls")};
  step.after = {id_of("sep")};
  special_ids_.insert(special_ids_.end(), {step.before[0], step.after[0]});
  steps_.push_back(std::move(step));
}

std::vector<int64_t> PostProcessor::with_special_tokens(std::vector<int64_t> ids) const {
  for (const Step& step : steps_) {
    std::vector<int64_t> whole = step.before;
    for (int64_t i = 0; i < step.texts; ++i) {
      if (i > 0) {
        const std::vector<int64_t>& between = step.between[static_cast<size_t>(i - 1)];
        whole.insert(whole.end(), between.begin(), between.end());
      }
      whole.insert(whole.end(), ids.begin(), ids.end());
    }
    whole.insert(whole.end(), step.after.begin(), step.after.end());
    ids = std::move(whole);
  }
  return ids;
}

}  // namespace vime::text
