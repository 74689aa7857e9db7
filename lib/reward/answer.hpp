// The JSON that commands and services get and give. Pure functions.
//
//   one sample   {"id": 7, "prompt": "..", "response": "..", "label": "..", "metadata": {..} or null, "sample": 12}
//                -> {"id": 7, "reward": 0.5}
//   a group      {"id": 7, "group": [{"prompt", "response", "label", "metadata", "sample"}, ...]}
//                -> {"id": 7, "rewards": [0.5, null, ...]}, one entry per sample, in order
//
// A command gets and gives one such object per line, a service gets the same object in the body of a POST. Answers may
// come in any order and hold more keys than these. reward_key is a path of keys from the answer's object ("reward",
// "reward.score"); in a group it leads into those entries of "rewards" that are objects. A service may answer with the
// bare number, or with the bare list for a group. {"error": "why"} says that there is no reward. NaN, Infinity and
// numbers too large for a double, which are no JSON, are understood, as values that are no reward. Bytes that are not
// UTF-8 are sent as U+FFFD.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "reward/score.hpp"

namespace vime::reward {

// No line end within or behind it. `grouped`: the group form, whatever the number of items.
std::string request_text(uint64_t id, const std::vector<ScoreItem>& items, bool grouped);

// The text as JSON, with what is no JSON number replaced; nothing when it is none even so.
std::optional<Json> parse_answer(const std::string& text);
// The member "id" as a number that we could have sent.
std::optional<uint64_t> answer_id(const Json& answer);
// One score per item.
std::vector<Score> read_answer(const Json& answer, size_t items, bool grouped, const std::string& reward_key);

// The start of a text for an error message: at most 80 bytes, made printable, quoted.
std::string quote(const std::string& text);

}  // namespace vime::reward
