#include "vllm/dialect.hpp"

#include <charconv>
#include <limits>
#include <string_view>

#include "base/error.hpp"

namespace vime::vllm {
namespace {

struct Release {
  int major = 0;
  int minor = 0;

  auto operator<=>(const Release&) const = default;
};

constexpr Release kOldest{0, 21};
constexpr Release kNewest{0, 33};
constexpr Release kForEver{std::numeric_limits<int>::max(), 0};

struct Capability {
  bool Dialect::*field;
  Release first;
  Release last = kForEver;
};

// Read in the sources of the releases 0.20.2 to 0.33.0.
constexpr Capability kCapabilities[] = {
    {&Dialect::start_needs_body, {0, 21}, {0, 24}},
    {&Dialect::start_takes_raw_weights, {0, 21}, {0, 24}},
    {&Dialect::failed_update_ends_session, {0, 23}},
    {&Dialect::finish_takes_version, {0, 27}},
    {&Dialect::aborts_all_requests, {0, 26}},
    {&Dialect::shuts_transfer_down, {0, 32}},
    {&Dialect::has_weight_checker, {0, 32}},
    {&Dialect::pause_refuses_requests, {0, 33}},
    {&Dialect::ipc_value_has_function, {0, 21}, {0, 21}},
    {&Dialect::ipc_takes_packed, {0, 22}},
    {&Dialect::ipc_packed_in_init, {0, 27}},
    {&Dialect::ipc_imports_ray, {0, 22}, {0, 26}},
    {&Dialect::nccl_packed_in_init, {0, 28}},
    {&Dialect::nccl_takes_unique_id, {0, 30}},
    {&Dialect::packed_takes_scalars, {0, 32}},
    {&Dialect::generate_needs_flag, {0, 30}},
    {&Dialect::generate_tells_versions, {0, 32}},
    {&Dialect::generate_logprobs_by_id, {0, 32}},
};

Generation generation_of(Release release) {
  if (release < Release{0, 22}) return Generation::g2a;
  if (release < Release{0, 25}) return Generation::g2b;
  if (release < Release{0, 27}) return Generation::g2c;
  return Generation::g3;
}

// Takes a number from the front of `text`.
bool take_number(std::string_view& text, int& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

// "MAJOR.MINOR" and, after it, nothing or what PEP 440 lets follow: ".1", "rc1", "a2", "b1", "-1", "+cpu".
Release parse_release(const std::string& version) {
  std::string_view text = version;
  if (text.starts_with('v')) text.remove_prefix(1);
  Release release;
  bool good = take_number(text, release.major) && text.starts_with('.');
  if (good) text.remove_prefix(1);
  good = good && take_number(text, release.minor);
  good = good && (text.empty() || std::string_view(".abr+-").find(text.front()) != std::string_view::npos);
  if (!good) {
    throw Error(ErrorKind::refused,
                "vLLM version: expected one such as 0.25.1, found \"" + version.substr(0, 80) + "\"",
                "a vLLM that is installed from a wheel knows its version");
  }
  return release;
}

}  // namespace

const char* generation_name(Generation generation) {
  switch (generation) {
    case Generation::g2a:
      return "G2a";
    case Generation::g2b:
      return "G2b";
    case Generation::g2c:
      return "G2c";
    case Generation::g3:
      return "G3";
  }
  return "?";
}

Dialect dialect_of(const std::string& version) {
  const Release release = parse_release(version);
  if (release < kOldest) {
    throw Error(
        ErrorKind::refused,
        "vLLM " + version + " is too old: before 0.21 a weight update is one request that has to hold the whole model",
        "use vLLM 0.21 or newer, for torch 2.11 best 0.25.1; a build without git tags calls itself 0.1.dev, "
        "give it a version with SETUPTOOLS_SCM_PRETEND_VERSION");
  }
  Dialect dialect;
  dialect.version = version;
  dialect.newer_than_known = release > kNewest;
  dialect.generation = generation_of(release);
  for (const Capability& capability : kCapabilities) {
    dialect.*capability.field = release >= capability.first && release <= capability.last;
  }
  return dialect;
}

}  // namespace vime::vllm
