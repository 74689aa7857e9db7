#include "text/bpe_tokenizer.hpp"

#include <doctest/doctest.h>

#include <chrono>

#include "base/json.hpp"
#include "base/random.hpp"
#include "refusal.hpp"
#include "text/plain_tokenizers.hpp"
#include "text/tokenizer_files.hpp"

using namespace vime;
using namespace vime::text;

namespace {

using Ids = std::vector<int64_t>;
const fs::path kTokenizers = fs::path(VIME_TEST_DATA) / "tokenizers";

Json gpt2() {
  return parse_json(read_file(kTokenizers / "gpt2" / "tokenizer.json"));
}

// A vocabulary of single letters with two merges.
Json small() {
  return parse_json(R"({"added_tokens": [{"id": 9, "content": "<e>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4, "\u00e9": 5}, "merges": ["a b", ["ab", "c"]]}})");
}

BpeTokenizer made(const Json& json, const SpecialTokens& tokens = {}) {
  return BpeTokenizer(json.dump(), tokens, "");
}

std::string refused(const Json& json) {
  return refusal([&] { made(json); });
}

Json with(Json json, const char* pointer, const Json& value) {
  json[Json::json_pointer(pointer)] = value;
  return json;
}

}  // namespace

TEST_CASE("merges of both notations join neighbours in their order") {
  const BpeTokenizer tokenizer = made(small());
  CHECK(tokenizer.encode("abcab") == Ids{4, 2});
  CHECK(tokenizer.encode("bca") == Ids{1, 3, 0});
  CHECK(tokenizer.decode(Ids{4, 2}) == "abc ab");
  // Numbered on behind the six tokens of the model, whatever the file says.
  CHECK(tokenizer.encode("a<e>") == Ids{0, 6});
  CHECK(tokenizer.special_ids() == Ids{6});
  CHECK(tokenizer.vocab_size() == 7);
}

TEST_CASE("parts that are not supported are refused by name, with what is") {
  CHECK(
      contains(refused(with(small(), "/model/type", "Unigram")), "type \"Unigram\" is not supported (supported: BPE)"));
  CHECK(contains(refused(with(small(), "/normalizer", {{"type", "Nmt"}})), "normalizer: normalizer \"Nmt\""));
  CHECK(contains(refused(with(small(), "/normalizer", {{"type", "Nmt"}})), "NFC"));
  CHECK(contains(refused(with(small(), "/pre_tokenizer", {{"type", "UnicodeScripts"}})), "\"UnicodeScripts\""));
  CHECK(contains(refused(with(small(), "/decoder", {{"type", "CTC"}})), "decoder \"CTC\""));
  CHECK(contains(refused(with(small(), "/post_processor", {{"type", "Odd"}})), "post-processor \"Odd\""));
  const Json nested = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Odd"}}}}};
  CHECK(contains(refused(with(small(), "/pre_tokenizer", nested)), "pre_tokenizer.pretokenizers[0]"));
  CHECK(contains(refused(with(small(), "/model/dropout", 0.1)), "model.dropout"));
}

TEST_CASE("damaged vocabularies and merges are refused with their place") {
  CHECK(contains(refusal([] { BpeTokenizer("{", {}, ""); }), "not a JSON object"));
  CHECK(contains(refused(with(small(), "/model/merges/0", "a b c")), "model.merges[0]"));
  CHECK(contains(refused(with(small(), "/model/merges/0", "a x")), "\"x\" is not in the vocabulary"));
  CHECK(contains(refused(with(small(), "/model/vocab/a", -1)), "the id of \"a\""));
  CHECK(contains(refused(with(small(), "/model/vocab/a", 1)), "two tokens have the id 1"));
  CHECK(contains(refused(with(small(), "/model/vocab/a", 4000000000u)), "4000000000"));
  CHECK(contains(refused(with(small(), "/added_tokens/0/content", 3)), "added_tokens[0].content"));
}

TEST_CASE("expressions that cannot be translated or do not end are refused") {
  const auto split = [](const std::string& regex) {
    return with(gpt2(), "/pre_tokenizer",
                {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}});
  };
  CHECK(contains(refused(split("[a-z&&[b]]")), "\"&&\" in a class"));
  CHECK(contains(refused(split("(a")), "(a"));
  CHECK(contains(refused(split("\\p{Nothing}")), "\\p{Nothing}"));
  CHECK(contains(refused(split("(?<=a+)b")), "lookbehind"));
  CHECK(contains(refused(split("\\K")), "\\K"));
  const BpeTokenizer slow = made(split("(a+)+[bc]"));
  CHECK(contains(refusal([&] { slow.encode(std::string(200, 'a')); }), "match limit"));
}

TEST_CASE("bytes that are no UTF-8 are encoded as the replacement character") {
  const auto tokenizer = load_bpe_tokenizer(kTokenizers / "qwen2");
  CHECK(tokenizer->encode("a\xff\xe4\xbd") == tokenizer->encode("a\xef\xbf\xbd\xef\xbf\xbd"));
}

TEST_CASE("part of a character decodes to well-formed text, unknown ids to none") {
  const auto tokenizer = load_bpe_tokenizer(kTokenizers / "qwen2");
  const Ids ids = tokenizer->encode("\xf0\x9f\x98\x80");
  REQUIRE(ids.size() > 1);
  CHECK(tokenizer->decode(Ids(ids.begin(), ids.end() - 1)) == "\xef\xbf\xbd");
  CHECK(tokenizer->decode(Ids{100000, INT64_MAX}) == "");
  CHECK(contains(refusal([&] { tokenizer->decode(Ids{1, -1}); }), "token 1 is -1"));
}

TEST_CASE("one piece of a megabyte is merged in the same order as many short ones, in less than quadratic time") {
  const BpeTokenizer tokenizer = made(small());
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "abc";
  const auto begin = std::chrono::steady_clock::now();
  CHECK(tokenizer.encode(text) == Ids(300000, 4));
  // Looking at all pairs for every merge would take hours.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  // 49 and 47 symbols are merged by different code.
  CHECK(tokenizer.encode(text.substr(0, 3 * 49)) == Ids(49, 4));
  CHECK(tokenizer.encode(text.substr(0, 3 * 15)) == Ids(15, 4));
}

TEST_CASE("eos, bos and pad come from the files beside the vocabulary") {
  const TempDir dir;
  write_file_atomic(dir.path() / "tokenizer.json", small().dump());
  CHECK(load_tokenizer(dir.path())->eos_id() == Tokenizer::kNoToken);
  write_file_atomic(dir.path() / "config.json", R"({"eos_token_id": [3, 4], "bos_token_id": 1})");
  CHECK(load_tokenizer(dir.path())->eos_id() == 3);
  CHECK(load_tokenizer(dir.path())->bos_id() == 1);
  CHECK(load_tokenizer(dir.path())->pad_id() == 3);
  write_file_atomic(dir.path() / "generation_config.json", R"({"eos_token_id": 2, "pad_token_id": 0})");
  CHECK(load_tokenizer(dir.path())->eos_id() == 2);
  CHECK(load_tokenizer(dir.path())->pad_id() == 0);
  write_file_atomic(dir.path() / "special_tokens_map.json", R"({"eos_token": {"content": "<e>"}})");
  CHECK(load_tokenizer(dir.path())->eos_id() == 6);
  write_file_atomic(dir.path() / "tokenizer_config.json", R"({"eos_token": "abc", "pad_token": null})");
  CHECK(load_tokenizer(dir.path())->eos_id() == 4);
}

TEST_CASE("saving carries all tokenizer files along byte for byte, and those of another tokenizer away") {
  const TempDir from;
  const TempDir to;
  const std::string json = small().dump(3);
  write_file_atomic(from.path() / "tokenizer.json", json);
  write_file_atomic(from.path() / "tokenizer_config.json", "{ \"eos_token\":\"abc\" }");
  write_file_atomic(from.path() / "chat_template.jinja", "{{ messages }}\n\n");
  write_file_atomic(from.path() / "model.safetensors", "weights");
  write_file_atomic(to.path() / "merges.txt", "old");
  save_tokenizer(ByteTokenizer(), to.path());
  const auto tokenizer = load_tokenizer(from.path());
  save_tokenizer(*tokenizer, to.path());
  CHECK(read_file(to.path() / "tokenizer.json") == json);
  CHECK(read_file(to.path() / "tokenizer_config.json") == "{ \"eos_token\":\"abc\" }");
  CHECK(read_file(to.path() / "chat_template.jinja") == "{{ messages }}\n\n");
  CHECK(!fs::exists(to.path() / "model.safetensors"));
  CHECK(!fs::exists(to.path() / "merges.txt"));
  CHECK(load_tokenizer(to.path())->eos_id() == 4);
  CHECK(copy_tokenizer_files(to.path(), to.path()).empty());
  CHECK(fs::exists(to.path() / "tokenizer.json"));
  CHECK(tokenizer_for(from.path().string(), "01", "")->eos_id() == 4);
  CHECK(tokenizer_for("auto", "01", to.path())->eos_id() == 4);
}

TEST_CASE("damaged tokenizer files are read or refused, never worse") {
  const std::string whole = small().dump();
  const std::string rest = with(with(gpt2(), "/model", small()["model"]), "/normalizer", {{"type", "NFC"}}).dump();
  const std::string bits[] = {"{", "}", "[", "]", "\"", ":", ",", "null", "-1", "1e99", "true", "\\u00e9", "\xff"};
  int refused_count = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    std::string json = i % 2 == 0 ? whole : rest;
    const size_t place = mix_key(i, 1) % json.size();
    json.replace(place, mix_key(i, 2) % 6, bits[mix_key(i, 3) % std::size(bits)]);
    const std::string why = refusal([&] {
      const BpeTokenizer tokenizer(json, {}, "");
      tokenizer.decode(tokenizer.encode("ab <e> abc \xc3\xa9\xff", true));
    });
    refused_count += why.empty() ? 0 : 1;
  }
  CHECK(refused_count > 1000);
  CHECK(refused_count < 4000);
}
