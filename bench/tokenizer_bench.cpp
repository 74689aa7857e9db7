// Tokens per second of tokenizer.json tokenizers on one core, and how long they take to load.
//   tokenizer_bench <text file> <model directory>... [megabytes=8]
#include <time.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "text/tokenizer.hpp"

namespace {

using namespace vime;
// Of the core itself, so that other work on the machine does not count.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// The file's lines over and over, in documents of some kilobytes as prompts are.
std::vector<std::string> documents(const std::string& text, size_t bytes) {
  constexpr size_t kDocument = 4096;
  std::vector<std::string> made;
  for (size_t done = 0, place = 0; done < bytes; done += kDocument) {
    std::string document;
    while (document.size() < kDocument) {
      const size_t end = text.find('\n', place);
      document += text.substr(place, end == std::string::npos ? end : end + 1 - place);
      place = end == std::string::npos ? 0 : end + 1;
      if (place >= text.size()) place = 0;
    }
    made.push_back(std::move(document));
  }
  return made;
}

void measure(const std::string& dir, const std::vector<std::string>& texts) {
  const double begin = cpu_seconds();
  const auto tokenizer = text::load_tokenizer(dir);
  const double load = cpu_seconds() - begin;
  size_t bytes = 0;
  size_t tokens = 0;
  std::vector<std::vector<int64_t>> all;
  const double encode_begin = cpu_seconds();
  for (const std::string& document : texts) {
    all.push_back(tokenizer->encode(document));
    bytes += document.size();
    tokens += all.back().size();
  }
  const double encode = cpu_seconds() - encode_begin;
  const double decode_begin = cpu_seconds();
  size_t decoded = 0;
  for (const auto& ids : all) decoded += tokenizer->decode(ids).size();
  const double decode = cpu_seconds() - decode_begin;
  const double millions = static_cast<double>(tokens) / 1e6;
  std::printf(
      "%-40s %7lld tokens, load %.3f s; %.2f bytes a token; encode %.2f M tokens/s, %.1f MB/s; decode %.2f M "
      "tokens/s (%zu of %zu bytes)\n",
      dir.c_str(), static_cast<long long>(tokenizer->vocab_size()), load,
      static_cast<double>(bytes) / static_cast<double>(tokens), millions / encode,
      static_cast<double>(bytes) / 1e6 / encode, millions / decode, decoded, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    double megabytes = 8;
    if (!arguments.empty() && arguments.back().rfind("megabytes=", 0) == 0) {
      megabytes = std::stod(arguments.back().substr(10));
      arguments.pop_back();
    }
    if (arguments.size() < 2) {
      std::fprintf(stderr, "usage: tokenizer_bench <text file> <model directory>... [megabytes=8]\n");
      return 2;
    }
    const auto texts = documents(read_file(arguments[0]) + "\n", static_cast<size_t>(megabytes * 1e6));
    for (size_t i = 1; i < arguments.size(); ++i) measure(arguments[i], texts);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
