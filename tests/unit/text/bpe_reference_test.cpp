// Ids and decodings that the `tokenizers` package gave for three families of byte-level BPE.
#include <doctest/doctest.h>

#include <fstream>

#include "base/json.hpp"
#include "text/bpe_tokenizer.hpp"
#include "text/tokenizer_files.hpp"

using namespace vime;
using namespace vime::text;

namespace {

using Ids = std::vector<int64_t>;

void check_case(const Tokenizer& tokenizer, const Json& expected) {
  const auto text = expected["text"].get<std::string>();
  CAPTURE(text);
  const Ids ids = tokenizer.encode(text);
  CHECK(ids == expected["ids"].get<Ids>());
  const Ids with_special = tokenizer.encode(text, true);
  CHECK(with_special == expected["ids_with_special"].get<Ids>());
  CHECK(tokenizer.decode(ids, false) == expected["decoded"].get<std::string>());
  CHECK(tokenizer.decode(ids, true) == expected["decoded_skip_special"].get<std::string>());
}

void check_family(const std::string& name) {
  const fs::path dir = fs::path(VIME_TEST_DATA) / "tokenizers" / name;
  const auto tokenizer = load_bpe_tokenizer(dir);
  std::ifstream cases(dir / "cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) check_case(*tokenizer, parse_json(line, "case"));
  CHECK(count >= 700);
}

}  // namespace

TEST_CASE("GPT-2's family gives the ids and texts of the tokenizers package") {
  check_family("gpt2");
}

TEST_CASE("Qwen2's family gives the ids and texts of the tokenizers package") {
  check_family("qwen2");
}

TEST_CASE("Llama-3's family gives the ids and texts of the tokenizers package") {
  check_family("llama3");
}

// Normalisers, pre-tokenisers with every behaviour, unknown tokens, byte fallback, affixes, post-processors, decoders
// and added tokens in random combinations.
TEST_CASE("random combinations of parts give the ids and texts of the tokenizers package") {
  std::ifstream lines(fs::path(VIME_TEST_DATA) / "tokenizers" / "variety.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json entry = parse_json(line, "entry");
    CAPTURE(count);
    const BpeTokenizer tokenizer(entry["tokenizer"].dump(), SpecialTokens{}, "");
    for (const Json& expected : entry["cases"]) check_case(tokenizer, expected);
  }
  CHECK(count == 45);
}
