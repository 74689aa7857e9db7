#include "reward/answer.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace vime;
using namespace vime::reward;

namespace {

Score read_one(const std::string& text, const std::string& key = "reward") {
  const auto answer = parse_answer(text);
  REQUIRE(answer);
  return read_answer(*answer, 1, false, key).at(0);
}

Missing why(const std::string& text, const std::string& key = "reward") {
  const Score score = read_one(text, key);
  CHECK_FALSE(score.value);
  CHECK_FALSE(score.problem.empty());
  return score.why;
}

}  // namespace

TEST_CASE("a request carries the sample, and metadata as JSON where it is some") {
  const Json one = parse_json(request_text(7, {{"p", "r", "l", "{\"a\": 1}", "", 12}}, false));
  CHECK(one == parse_json(R"({"id":7,"prompt":"p","response":"r","label":"l","metadata":{"a":1},"sample":12})"));
  const Json group = parse_json(request_text(8, {{"p", "r", "l"}, {"p", "s", "l", "text"}}, true));
  CHECK(group["id"] == 8);
  CHECK(group["group"].size() == 2);
  CHECK(group["group"][0]["metadata"].is_null());
  CHECK(group["group"][1]["metadata"] == "text");
  const std::string odd = request_text(9, {{"line\nend", "\xff", ""}}, false);
  CHECK(odd.find('\n') == std::string::npos);
  CHECK(parse_json(odd)["response"] == "\xef\xbf\xbd");
}

TEST_CASE("a number is a reward, wherever reward_key leads") {
  CHECK(read_one(R"({"id":1,"reward":0.5,"more":[1]})").value == 0.5);
  CHECK(read_one(R"({"reward":-3})").value == -3.0);
  CHECK(read_one("0.25").value == 0.25);
  CHECK(read_one(R"({"reward":{"score":1}})", "reward.score").value == 1.0);
  CHECK(read_one(R"({"score":1})", "score").value == 1.0);
}

TEST_CASE("what is no number never becomes one, and says why") {
  CHECK(why("{}") == Missing::absent);
  CHECK(why(R"({"score":1})") == Missing::absent);
  CHECK(why(R"({"reward":{"score":1}})", "reward.points") == Missing::absent);
  CHECK(why(R"({"reward":null})") == Missing::null);
  CHECK(why(R"({"reward":null})", "reward.score") == Missing::null);
  CHECK(why("null") == Missing::null);
  CHECK(why(R"({"reward":NaN})") == Missing::not_finite);
  CHECK(why(R"({"reward":Infinity})") == Missing::not_finite);
  CHECK(why(R"({"reward":-Infinity})") == Missing::not_finite);
  CHECK(why(R"({"reward":1e999})") == Missing::not_finite);
  CHECK(why(R"({"reward":1e308})") == Missing::not_finite);
  CHECK(why(R"({"reward":"0.5"})") == Missing::not_numeric);
  CHECK(why(R"({"reward":"NaN"})") == Missing::not_numeric);
  CHECK(why(R"({"reward":true})") == Missing::not_numeric);
  CHECK(why(R"({"reward":[1]})") == Missing::not_numeric);
  CHECK(why(R"({"reward":{"score":1}})") == Missing::not_numeric);
  CHECK(why(R"({"error":"no tests"})") == Missing::failed);
  CHECK(read_one(R"({"reward":9223372036854775808})").value == 9223372036854775808.0);  // 2^63
  CHECK(read_one(R"({"reward":1e-999})").value == 0.0);
}

TEST_CASE("a not-finite number in another key, or a word in a text, does no harm") {
  CHECK(read_one(R"({"loss":NaN,"text":"NaN and \"Infinity\" 1e999","reward":1})").value == 1.0);
}

TEST_CASE("a group's answer has one entry per sample, in order") {
  const auto read = [](const std::string& text) { return read_answer(*parse_answer(text), 3, true, "reward"); };
  const auto scores = read(R"({"id":1,"rewards":[1,null,{"reward":0.5}]})");
  CHECK(scores[0].value == 1.0);
  CHECK(scores[1].why == Missing::null);
  CHECK(scores[2].value == 0.5);
  CHECK(read("[1,2,3]")[2].value == 3.0);
  CHECK(read(R"({"rewards":[1,2]})")[0].why == Missing::malformed);
  CHECK(read(R"({"rewards":[1,2]})").size() == 3);
  CHECK(read(R"({"rewards":1})")[0].why == Missing::malformed);
  CHECK(read(R"({"reward":1})")[0].why == Missing::absent);
  CHECK(read("5")[0].why == Missing::malformed);
}

TEST_CASE("only whole numbers of zero and more are ids, and what is not JSON is no answer") {
  CHECK(answer_id(*parse_answer(R"({"id":7})")) == 7u);
  for (const std::string text : {R"({"id":-1})", R"({"id":"7"})", R"({"id":1.5})", "{}", "7", "[7]"}) {
    CAPTURE(text);
    CHECK_FALSE(answer_id(*parse_answer(text)));
  }
  for (const std::string text : {"", "loading model", "{\"id\":1", "{\"id\":1}x", "\xff", "\""}) {
    CAPTURE(text);
    CHECK_FALSE(parse_answer(text));
  }
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  CHECK(read_answer(*parse_answer(deep), 1, false, "reward")[0].why == Missing::not_numeric);
}
