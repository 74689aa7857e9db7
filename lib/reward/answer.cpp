#include "reward/answer.hpp"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/strings.hpp"

namespace vime::reward {
namespace {

// Stands in the JSON where the answer had a number that is not finite. A control sign cannot stand in a JSON string
// unescaped, so that no answer's own text is taken for it by chance.
constexpr const char* kNotFinite = "\"\\u0001not finite\"";
const std::string kNotFiniteValue = "\x01not finite";

Json item_json(const ScoreItem& item) {
  Json metadata = nullptr;
  if (!item.metadata.empty()) {
    metadata = try_parse_json(item.metadata);
    if (metadata.is_discarded()) metadata = item.metadata;
  }
  return {{"prompt", item.prompt},
          {"response", item.response},
          {"label", item.label},
          {"metadata", std::move(metadata)},
          {"sample", item.sample}};
}

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.' || c == '_';
}

// Whether a bare word of the text, outside strings, is a number that a double cannot hold or one of JavaScript's words.
bool is_not_finite(std::string_view word) {
  if (!word.empty() && word[0] == '-') word.remove_prefix(1);
  if (word == "NaN" || word == "Infinity" || word == "nan" || word == "inf") return true;
  if (word.empty() || !std::isdigit(static_cast<unsigned char>(word[0]))) return false;
  double value = 0.0;
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value);
  if (result.ec != std::errc::result_out_of_range) return false;
  // Too small is fine: the parser makes it zero.
  const size_t power = word.find_first_of("eE");
  return power == std::string_view::npos || word.substr(power + 1, 1) != "-";
}

std::string with_finite_numbers(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      const size_t begin = at++;
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      at = std::min(at + 1, text.size());
      out.append(text, begin, at - begin);
    } else if (is_word_char(text[at])) {
      const size_t begin = at;
      while (at < text.size() && is_word_char(text[at])) ++at;
      const std::string_view word = std::string_view(text).substr(begin, at - begin);
      out += is_not_finite(word) ? kNotFinite : word;
    } else {
      out += text[at++];
    }
  }
  return out;
}

// Never prints a list or an object whole: printing is recursive, and the answer may be nested half a million deep.
std::string shown(const Json& value) {
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  if (value.is_object()) return "an object";
  return quote(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Score no_number(const Json& value, const std::string& key) {
  if (value.is_null()) return no_score(Missing::null, "\"" + key + "\" is null");
  if (value.is_string() && value.get_ref<const std::string&>() == kNotFiniteValue)
    return no_score(Missing::not_finite, "\"" + key + "\" is NaN, infinite, or larger than any number");
  return no_score(Missing::not_numeric, "\"" + key + "\": expected a number, found " + shown(value));
}

Score absent(const Json& answer, const std::string& key) {
  if (answer.contains("error")) {
    const Json& error = answer.at("error");
    return no_score(Missing::failed,
                    "the answer says: " + (error.is_string() ? quote(error.get<std::string>()) : shown(error)));
  }
  std::vector<std::string> keys;
  for (const auto& item : answer.items()) {
    if (keys.size() < 8) keys.push_back(item.key());
  }
  return no_score(Missing::absent, "the answer has no \"" + key + "\"; its keys are " + quote(join(keys, ", ")));
}

// The score in `value`: a number, or an object in which `key` leads to one.
Score score_in(const Json& value, const std::string& key) {
  const Json* at = &value;
  if (value.is_object()) {
    for (const std::string& part : split(key, '.')) {
      if (at->is_null()) return no_number(*at, key);
      if (!at->is_object() || !at->contains(part)) return absent(value, key);
      at = &at->at(part);
    }
  }
  if (!at->is_number()) return no_number(*at, key);
  return score_of(at->get<double>());
}

}  // namespace

std::string request_text(uint64_t id, const std::vector<ScoreItem>& items, bool grouped) {
  Json request{{"id", id}};
  if (grouped) {
    request["group"] = Json::array();
    for (const ScoreItem& item : items) request["group"].push_back(item_json(item));
  } else {
    request.update(item_json(items.front()));
  }
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Json> parse_answer(const std::string& text) {
  Json answer = try_parse_json(with_finite_numbers(text));
  if (answer.is_discarded()) return std::nullopt;
  return answer;
}

std::optional<uint64_t> answer_id(const Json& answer) {
  if (!answer.is_object() || !answer.contains("id") || !answer.at("id").is_number_integer()) return std::nullopt;
  if (answer.at("id").is_number_unsigned()) return answer.at("id").get<uint64_t>();
  return std::nullopt;
}

std::vector<Score> read_answer(const Json& answer, size_t items, bool grouped, const std::string& reward_key) {
  if (!grouped) return {score_in(answer, reward_key)};
  const bool is_object = answer.is_object();
  if (is_object && !answer.contains("rewards")) return std::vector<Score>(items, absent(answer, "rewards"));
  const Json& list = is_object ? answer.at("rewards") : answer;
  if (!list.is_array() || list.size() != items) {
    return std::vector<Score>(
        items, no_score(Missing::malformed,
                        "rewards of a group: expected a list of " + std::to_string(items) + ", found " + shown(list)));
  }
  std::vector<Score> scores;
  for (const Json& entry : list) scores.push_back(score_in(entry, reward_key));
  return scores;
}

std::string quote(const std::string& text) {
  std::string shown = text.size() > 80 ? text.substr(0, 77) + "..." : text;
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return "\"" + shown + "\"";
}

}  // namespace vime::reward
