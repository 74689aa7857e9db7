#include "text/tokenizer.hpp"

#include "base/error.hpp"
#include "base/strings.hpp"
#include "text/bpe_tokenizer.hpp"
#include "text/plain_tokenizers.hpp"
#include "text/tokenizer_files.hpp"

namespace vime::text {
namespace {

constexpr const char* kExpected = "\"auto\", \"byte\", \"char:<characters>\" or a directory";

// A tokenizer kept in a form that vime does not read, or none ("").
std::string unreadable_form(const fs::path& model_dir) {
  for (const char* name : {"tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json"}) {
    if (fs::exists(model_dir / name)) return name;
  }
  return "";
}

}  // namespace

bool has_tokenizer(const fs::path& model_dir) {
  return fs::exists(model_dir / kPlainTokenizerFile) || fs::exists(model_dir / kTokenizerFile) ||
         !unreadable_form(model_dir).empty();
}

std::shared_ptr<const Tokenizer> load_tokenizer(const fs::path& model_dir) {
  if (fs::exists(model_dir / kPlainTokenizerFile)) return load_plain_tokenizer(model_dir);
  if (fs::exists(model_dir / kTokenizerFile)) return load_bpe_tokenizer(model_dir);
  const std::string other = unreadable_form(model_dir);
  if (!other.empty()) {
    throw Error(
        ErrorKind::refused, (model_dir / other).string() + ": vime cannot read that kind of tokenizer",
        "write it as tokenizer.json (transformers' save_pretrained does), or set model.tokenizer to \"byte\" or "
        "\"char:<characters>\"");
  }
  throw Error(ErrorKind::refused,
              model_dir.string() + ": expected " + kPlainTokenizerFile + " or " + kTokenizerFile + ", found neither");
}

std::shared_ptr<const Tokenizer> tokenizer_for(const std::string& spec, const std::string& alphabet,
                                               const fs::path& model_dir) {
  if (spec == "byte") return std::make_shared<ByteTokenizer>();
  if (spec.rfind("char:", 0) == 0) return std::make_shared<CharTokenizer>(spec.substr(5));
  if (spec != "auto") {
    if (fs::is_directory(spec)) return load_tokenizer(spec);
    const std::string near = nearest_name(spec, {"auto", "byte"});
    throw Error(ErrorKind::refused, std::string("model.tokenizer: expected ") + kExpected + ", found \"" + spec + "\"",
                near.empty() ? "" : "did you mean \"" + near + "\"?");
  }
  if (!model_dir.empty() && has_tokenizer(model_dir)) return load_tokenizer(model_dir);
  if (!alphabet.empty()) return std::make_shared<CharTokenizer>(alphabet);
  if (!model_dir.empty()) {
    throw Error(ErrorKind::refused, "model.tokenizer: there is no tokenizer.json in " + model_dir.string(),
                std::string("expected ") + kExpected);
  }
  return std::make_shared<ByteTokenizer>();
}

}  // namespace vime::text
