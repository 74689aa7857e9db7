#include "weights/version.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::weights {
namespace {

bool read_version(const std::string& text, int64_t& version) {
  if (text == "default") {
    version = 0;
    return true;
  }
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, version);
  return error == std::errc() && stop == end && !text.empty() && version >= 0 && text[0] != '-';
}

}  // namespace

int64_t parse_version(const std::string& text, const std::string& engine) {
  int64_t version = 0;
  if (!read_version(text, version)) {
    throw Error(ErrorKind::check_failed,
                engine + ": weight version \"" + text + "\" is not an integer (expected \"default\" or a number)");
  }
  return version;
}

void VersionLedger::observe(int64_t reported) {
  ever_sent_ = std::max(ever_sent_, reported);
}

int64_t VersionLedger::take_candidate() {
  ever_sent_ = 1 + std::max(committed_, ever_sent_);
  return ever_sent_;
}

void VersionLedger::commit(int64_t version) {
  VIME_CHECK(version == ever_sent_ && version > committed_, "commit of version " + std::to_string(version));
  committed_ = version;
}

std::vector<std::string> version_problems(int64_t expected, const std::vector<EngineVersion>& engines) {
  std::vector<std::string> problems;
  for (const EngineVersion& engine : engines) {
    int64_t version = 0;
    if (!engine.readable) {
      problems.push_back(engine.engine + ": weight version unreadable: " + engine.text);
    } else if (!read_version(engine.text, version)) {
      problems.push_back(engine.engine + ": weight version \"" + engine.text + "\" is not an integer");
    } else if (version != expected) {
      problems.push_back(engine.engine + ": weight version mismatch: expected " + std::to_string(expected) +
                         ", engine says " + engine.text);
    }
  }
  return problems;
}

std::vector<std::string> checksum_problems(const std::map<std::string, uint64_t>& trainer,
                                           const std::map<std::string, std::map<std::string, uint64_t>>& engines) {
  std::vector<std::string> problems;
  for (const auto& [engine, sums] : engines) {
    std::vector<std::string> differ;
    for (const auto& [name, sum] : trainer) {
      const auto found = sums.find(name);
      if (found == sums.end()) {
        differ.push_back(name + ", which is missing");
      } else if (found->second != sum) {
        differ.push_back(name + ": expected " + hex(sum) + ", found " + hex(found->second));
      }
    }
    for (const auto& [name, sum] : sums) {
      if (!trainer.contains(name)) differ.push_back(name + ", which the trainer does not have");
    }
    if (!differ.empty()) {
      problems.push_back(engine + ": contents differ from the trainer's in " + std::to_string(differ.size()) + " of " +
                         std::to_string(trainer.size()) + " parameters, first " + differ.front());
    }
  }
  return problems;
}

}  // namespace vime::weights
