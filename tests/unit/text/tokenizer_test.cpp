#include "text/plain_tokenizers.hpp"

#include <doctest/doctest.h>

#include "refusal.hpp"

using namespace vime;
using namespace vime::text;

namespace {

using Ids = std::vector<int64_t>;

}  // namespace

TEST_CASE("the character tokenizer numbers its alphabet after pad and eos") {
  const CharTokenizer tokenizer("0123456789=");
  CHECK(tokenizer.vocab_size() == 13);
  CHECK(tokenizer.encode("309=") == Ids{5, 2, 11, 12});
  CHECK(tokenizer.decode(Ids{5, 2, 1, 11, 0, 12}) == "309=");
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("the character tokenizer knows characters, not bytes") {
  const CharTokenizer tokenizer("a\xc3\xa9\xe2\x82\xac");
  CHECK(tokenizer.vocab_size() == 5);
  CHECK(tokenizer.encode("\xe2\x82\xac\xc3\xa9") == Ids{4, 3});
  CHECK(tokenizer.decode(Ids{4, 3}) == "\xe2\x82\xac\xc3\xa9");
}

TEST_CASE("a character outside the vocabulary is named with its place") {
  const CharTokenizer tokenizer("0123");
  const std::string text = refusal([&] { tokenizer.encode("01x3"); });
  CHECK(contains(text, "\"x\" at byte 2 of \"01x3\""));
  CHECK(contains(text, "vocabulary \"0123\""));
  CHECK(contains(text, "model.tokenizer"));
  CHECK(contains(refusal([&] { tokenizer.encode("0\xff"); }), "byte 0xff at byte 1"));
}

TEST_CASE("an alphabet that is empty, repeats itself or is not UTF-8 is refused") {
  CHECK(contains(refusal([] { CharTokenizer{""}; }), "empty"));
  CHECK(contains(refusal([] { CharTokenizer{"abca"}; }), "\"a\" comes twice"));
  CHECK(contains(refusal([] { CharTokenizer{"a\x80"}; }), "byte 0x80"));
}

TEST_CASE(
    "ids without a token give no text, as models have more rows than their tokenizers have tokens; negative ones are "
    "refused") {
  const CharTokenizer characters("01");
  CHECK(characters.decode(Ids{2, 4, 3, 1000000}) == "01");
  CHECK(ByteTokenizer().decode(Ids{258, 65, 99999}) == "A");
  CHECK(contains(refusal([&] { characters.decode(Ids{2, -4}); }), "token 1 is -4"));
  CHECK(contains(refusal([] { ByteTokenizer().decode(Ids{-1}); }), "token 0 is -1"));
}

TEST_CASE("the byte tokenizer encodes any bytes and decodes to valid UTF-8") {
  const ByteTokenizer tokenizer;
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const Ids ids = tokenizer.encode(all);
  REQUIRE(ids.size() == 256);
  for (int64_t b = 0; b < 256; ++b) CHECK(ids[static_cast<size_t>(b)] == b);
  CHECK(tokenizer.decode(tokenizer.encode("h\xc3\xa9")) == "h\xc3\xa9");
  CHECK(tokenizer.decode(Ids{104, 256, 257, 0xc3}) == "h\xef\xbf\xbd");
}

TEST_CASE("a tokenizer read back from a model directory gives the same ids") {
  const TempDir dir;
  const CharTokenizer characters("0123456789=\"\\\xe2\x82\xac");
  save_tokenizer(characters, dir.path());
  const auto loaded = load_tokenizer(dir.path());
  CHECK(loaded->encode("9\"\\\xe2\x82\xac") == characters.encode("9\"\\\xe2\x82\xac"));
  CHECK(loaded->vocab_size() == characters.vocab_size());
  CHECK(loaded->decode(Ids{2, 14, 12}) == characters.decode(Ids{2, 14, 12}));
  save_tokenizer(ByteTokenizer(), dir.path());
  CHECK(load_tokenizer(dir.path())->vocab_size() == 258);
}

TEST_CASE("what is saved beside vime's own file says the same in Hugging Face's words") {
  const TempDir dir;
  save_tokenizer(ByteTokenizer(), dir.path());
  fs::remove(dir.path() / "vime_tokenizer.json");
  const auto bytes = load_tokenizer(dir.path());
  for (const std::string text : {"hello, 42", "\xc3\xa9\xe2\x82\xac \n\t", ""})
    CHECK(bytes->encode(text) == ByteTokenizer().encode(text));
  CHECK(bytes->vocab_size() == 258);
  CHECK(bytes->eos_id() == ByteTokenizer().eos_id());

  const CharTokenizer characters("01\xe2\x82\xac=");
  save_tokenizer(characters, dir.path());
  const Json model = parse_json(read_file(dir.path() / "tokenizer.json"))["model"];
  CHECK(model["type"] == "WordLevel");
  CHECK(model["vocab"].size() == 6);
  for (const std::string character : {"0", "1", "\xe2\x82\xac", "="}) {
    CHECK(model["vocab"][character] == characters.encode(character).at(0));
  }
}

TEST_CASE("a tokenizer file that is missing, damaged or unknown is refused by its name") {
  const TempDir dir;
  const fs::path file = dir.path() / "vime_tokenizer.json";
  CHECK(contains(refusal([&] { load_plain_tokenizer(dir.path()); }), file.string()));
  for (const char* content : {"", "[]", "{\"type\": \"char\"}", "{\"type\": \"bpe\", \"pad_id\": 0, \"eos_id\": 1}",
                              "{\"type\": \"char\", \"alphabet\": \"aa\", \"pad_id\": 0, \"eos_id\": 1}",
                              "{\"type\": \"char\", \"alphabet\": 3, \"pad_id\": 0, \"eos_id\": 1}",
                              "{\"type\": \"byte\", \"pad_id\": 0, \"eos_id\": 1}"}) {
    CAPTURE(content);
    write_file_atomic(file, content);
    CHECK(contains(refusal([&] { load_tokenizer(dir.path()); }), file.string()));
  }
}

TEST_CASE("auto takes the model's own tokenizer, then the alphabet's, then bytes") {
  const TempDir dir;
  const std::string alphabet = "0123456789=";
  CHECK(tokenizer_for("auto", alphabet, "")->vocab_size() == 13);
  CHECK(tokenizer_for("auto", alphabet, dir.path())->vocab_size() == 13);
  CHECK(tokenizer_for("auto", "", "")->vocab_size() == 258);
  save_tokenizer(CharTokenizer("ab"), dir.path());
  CHECK(tokenizer_for("auto", alphabet, dir.path())->vocab_size() == 4);
  CHECK(tokenizer_for(dir.path().string(), alphabet, "")->vocab_size() == 4);
  CHECK(tokenizer_for("byte", alphabet, dir.path())->vocab_size() == 258);
  CHECK(tokenizer_for("char:xyz", alphabet, dir.path())->vocab_size() == 5);
}

TEST_CASE("a tokenizer that vime cannot read or does not know is refused") {
  const TempDir dir;
  CHECK(contains(refusal([&] { load_tokenizer(dir.path()); }), "found neither"));
  write_file_atomic(dir.path() / "tokenizer.model", "");
  CHECK(contains(refusal([&] { tokenizer_for("auto", "01", dir.path()); }), "tokenizer.model"));
  write_file_atomic(dir.path() / "tokenizer.json", "{}");
  CHECK(contains(refusal([&] { tokenizer_for("auto", "01", dir.path()); }), "tokenizer.json: model"));
  CHECK(contains(refusal([] { tokenizer_for("bytes", "", ""); }), "did you mean \"byte\"?"));
}
