// How long a JSONL data set takes to load, and how much memory the process then holds.
//   data_bench [lines=1000000] [line_bytes=200] [gz]      writes the file into a temporary folder first
//   data_bench FILE                                       loads this one
#include <sys/resource.h>
#include <zlib.h>

#include <cstdio>
#include <exception>
#include <string>

#include "base/deadline.hpp"
#include "base/files.hpp"
#include "base/random.hpp"
#include "data/data_source.hpp"
#include "data/prompts.hpp"

namespace {

using namespace vime;

// Lines of about `line_bytes` bytes: a prompt with an escape and a two-byte letter, a label, metadata.
void write_lines(const std::string& path, int64_t lines, size_t line_bytes, bool packed) {
  const gzFile file = gzopen(path.c_str(), packed ? "wb1" : "wbT");
  if (file == nullptr) throw_errno(ErrorKind::exhausted, path);
  for (int64_t i = 0; i < lines; ++i) {
    const std::string number = std::to_string(i);
    std::string line = "{\"prompt\": \"Question " + number + ": what is \\\"h\xC3\xA4lf\\\" of it?\\n";
    const std::string rest = "\", \"label\": \"" + std::to_string(mix64(static_cast<uint64_t>(i)) % 1000) +
                             "\", \"metadata\": {\"kind\": \"bench\", \"number\": " + number + "}}\n";
    while (line.size() + rest.size() < line_bytes) line += "words ";
    line += rest;
    if (gzwrite(file, line.data(), static_cast<unsigned>(line.size())) <= 0) throw_errno(ErrorKind::exhausted, path);
  }
  if (gzclose(file) != Z_OK) throw_errno(ErrorKind::exhausted, path);
}

uint64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

int bench(const std::string& path) {
  const double megabytes = static_cast<double>(fs::file_size(path)) / 1e6;
  data::LoadOptions options;
  options.prompt_data = {path};
  auto start = SteadyClock::now();
  data::PromptSet set = data::load_prompts(options);
  const double loading = seconds_since(start);
  const int64_t lines = set.lines;
  start = SteadyClock::now();
  data::DataSource source(std::move(set.prompts), 1, true);
  const double ordering = seconds_since(start);
  std::printf("%lld lines, %.0f MB on disk: loaded in %.2f s, shuffled in %.2f s, at most %.0f MB resident\n",
              static_cast<long long>(lines), megabytes, loading, ordering, static_cast<double>(peak_bytes()) / 1e6);
  return source.next(1).empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string first = argc > 1 ? argv[1] : "1000000";
    if (first.find_first_not_of("0123456789") != std::string::npos) return bench(first);
    const size_t line_bytes = argc > 2 ? std::stoul(argv[2]) : 200;
    const bool packed = argc > 3 && std::string(argv[3]) == "gz";
    const TempDir folder;
    const std::string path = (folder.path() / "bench.jsonl").string();
    write_lines(path, std::stoll(first), line_bytes, packed);
    return bench(path);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "data_bench: %s\n", e.what());
    return 1;
  }
}
