#include "sweep/legs.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>

#include "base/error.hpp"
#include "base/strings.hpp"

namespace vime::sweep {
namespace {

std::optional<int> parse_size(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxSize) return std::nullopt;
  return value;
}

Loss parse_loss(const std::string& text) {
  for (const Loss loss : {Loss::sample_mean, Loss::token_mean}) {
    if (text == loss_name(loss)) return loss;
  }
  throw Error(ErrorKind::refused, "--only loss: expected sample_mean or token_mean, found \"" + text + "\"");
}

std::string numbers_text(const std::vector<int>& numbers) {
  std::vector<std::string> texts;
  for (const int number : numbers) texts.push_back(std::to_string(number));
  return join(texts, ",");
}

bool takes_value(const std::optional<int>& asked, int value) {
  return !asked || *asked == value;
}

// Of one number of devices.
std::vector<Leg> legs_on(int num_gpus, const LegSizes& sizes) {
  std::vector<Leg> legs;
  for (const int tp : sizes.tp) {
    for (const int pp : sizes.pp) {
      for (const int cp : sizes.cp) {
        const int64_t model = int64_t{tp} * pp * cp;
        if (num_gpus % model != 0) continue;
        const int dp = static_cast<int>(num_gpus / model);
        for (const Loss loss : {Loss::sample_mean, Loss::token_mean}) legs.push_back({num_gpus, tp, pp, cp, dp, loss});
      }
    }
  }
  return legs;
}

}  // namespace

const char* loss_name(Loss loss) {
  return loss == Loss::sample_mean ? "sample_mean" : "token_mean";
}

std::string leg_name(const Leg& leg) {
  const std::string mean = leg.loss == Loss::sample_mean ? "sample mean" : "token mean";
  return "tp " + std::to_string(leg.tp) + " pp " + std::to_string(leg.pp) + " cp " + std::to_string(leg.cp) + " dp " +
         std::to_string(leg.dp) + " (" + std::to_string(leg.num_gpus) +
         (leg.num_gpus == 1 ? " device, " : " devices, ") + mean + ")";
}

std::string leg_folder(const Leg& leg) {
  return std::to_string(leg.num_gpus) + "gpus-tp" + std::to_string(leg.tp) + "-pp" + std::to_string(leg.pp) + "-cp" +
         std::to_string(leg.cp) + "-dp" + std::to_string(leg.dp) + "-" + loss_name(leg.loss);
}

bool LegFilter::takes(const Leg& leg) const {
  return takes_value(num_gpus, leg.num_gpus) && takes_value(tp, leg.tp) && takes_value(pp, leg.pp) &&
         takes_value(cp, leg.cp) && takes_value(dp, leg.dp) && (!loss || *loss == leg.loss);
}

int parse_count(const std::string& option, const std::string& text, int most) {
  const std::optional<int> count = parse_size(trim(text));
  if (count && *count <= most) return *count;
  throw Error(ErrorKind::refused,
              option + ": expected a number from 1 to " + std::to_string(most) + ", found \"" + text + "\"");
}

std::vector<int> parse_sizes(const std::string& option, const std::string& text) {
  std::vector<int> sizes;
  for (const std::string& part : split(text, ',')) {
    const std::optional<int> size = parse_size(trim(part));
    if (!size) {
      throw Error(ErrorKind::refused, option + ": expected numbers from 1 to " + std::to_string(kMaxSize) +
                                          " with commas between them, found \"" + text + "\"");
    }
    if (std::find(sizes.begin(), sizes.end(), *size) != sizes.end()) {
      throw Error(ErrorKind::refused, option + ": " + std::to_string(*size) + " comes twice in \"" + text + "\"");
    }
    sizes.push_back(*size);
  }
  return sizes;
}

LegFilter parse_only(const std::string& text) {
  LegFilter filter;
  if (text.empty()) return filter;
  const std::map<std::string, std::optional<int>*> numbers = {
      {"num_gpus", &filter.num_gpus}, {"tp", &filter.tp}, {"pp", &filter.pp}, {"cp", &filter.cp}, {"dp", &filter.dp}};
  std::vector<std::string> seen;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string name = trim(part.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : trim(part.substr(equals + 1));
    const auto number = numbers.find(name);
    if (number == numbers.end() && name != "loss") {
      const std::string nearest = nearest_name(name, {"num_gpus", "tp", "pp", "cp", "dp", "loss"});
      throw Error(
          ErrorKind::refused,
          "--only: unknown name \"" + name + "\"" + (nearest.empty() ? "" : " (did you mean \"" + nearest + "\"?)"),
          "for example --only tp=2,pp=2; the names are num_gpus, tp, pp, cp, dp and loss");
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      throw Error(ErrorKind::refused, "--only: \"" + name + "\" comes twice in \"" + text + "\"");
    }
    seen.push_back(name);
    if (name == "loss") {
      filter.loss = parse_loss(value);
    } else if (!(*number->second = parse_size(value))) {
      throw Error(ErrorKind::refused, "--only " + name + ": expected a number of at least 1, found \"" + value + "\"");
    }
  }
  return filter;
}

std::vector<Leg> make_legs(const LegSizes& sizes, const LegFilter& only) {
  std::vector<Leg> taken;
  size_t all = 0;
  for (const int num_gpus : sizes.num_gpus) {
    const std::vector<Leg> legs = legs_on(num_gpus, sizes);
    if (legs.empty()) {
      throw Error(ErrorKind::refused, "no layout of TP " + numbers_text(sizes.tp) + ", PP " + numbers_text(sizes.pp) +
                                          " and CP " + numbers_text(sizes.cp) + " divides " + std::to_string(num_gpus) +
                                          " devices");
    }
    all += legs.size();
    std::copy_if(legs.begin(), legs.end(), std::back_inserter(taken), [&](const Leg& leg) { return only.takes(leg); });
  }
  if (taken.empty()) {
    throw Error(ErrorKind::refused, "--only takes none of the " + std::to_string(all) + " legs",
                "vime check-parallel plan lists them");
  }
  return taken;
}

}  // namespace vime::sweep
