#include "sweep/legs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "base/error.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.message();
  }
}

// "8: 1/1/1" for every layout, without the loss.
std::vector<std::string> layouts(const std::vector<Leg>& legs) {
  std::vector<std::string> names;
  for (const Leg& leg : legs) {
    if (leg.loss == Loss::sample_mean) {
      names.push_back(std::to_string(leg.num_gpus) + ": " + std::to_string(leg.tp) + "/" + std::to_string(leg.pp) +
                      "/" + std::to_string(leg.cp));
    }
  }
  return names;
}

}  // namespace

TEST_CASE("the default sweep has these 33 layouts, each for both losses") {
  const std::vector<Leg> legs = make_legs({}, {});
  CHECK(legs.size() == 66);
  CHECK(layouts(legs) == std::vector<std::string>{"8: 1/1/1", "8: 1/1/2", "8: 1/1/4", "8: 1/1/8", "8: 1/2/1",
                                                  "8: 1/2/2", "8: 1/2/4", "8: 1/4/1", "8: 1/4/2", "8: 2/1/1",
                                                  "8: 2/1/2", "8: 2/1/4", "8: 2/2/1", "8: 2/2/2", "8: 2/4/1",
                                                  "8: 4/1/1", "8: 4/1/2", "8: 4/2/1", "8: 8/1/1",  //
                                                  "4: 1/1/1", "4: 1/1/2", "4: 1/1/4", "4: 1/2/1", "4: 1/2/2",
                                                  "4: 1/4/1", "4: 2/1/1", "4: 2/1/2", "4: 2/2/1", "4: 4/1/1",  //
                                                  "2: 1/1/1", "2: 1/1/2", "2: 1/2/1", "2: 2/1/1"});
  std::set<std::string> names;
  for (const Leg& leg : legs) {
    CHECK(leg.tp * leg.pp * leg.cp * leg.dp == leg.num_gpus);
    names.insert(leg_folder(leg));
  }
  CHECK(names.size() == 66);
  CHECK(legs[1].loss == Loss::token_mean);
  CHECK(leg_name(legs[1]) == "tp 1 pp 1 cp 1 dp 8 (8 devices, token mean)");
  CHECK(leg_folder(legs[1]) == "8gpus-tp1-pp1-cp1-dp8-token_mean");
}

TEST_CASE("--only takes the legs with all its values") {
  const std::vector<Leg> legs = make_legs({}, parse_only("tp=2,pp=2"));
  CHECK(layouts(legs) == std::vector<std::string>{"8: 2/2/1", "8: 2/2/2", "4: 2/2/1"});
  CHECK(legs.size() == 6);
  CHECK(make_legs({}, parse_only("tp=2, pp=2, num_gpus=8, cp=1, dp=2, loss=token_mean")) ==
        std::vector<Leg>{{8, 2, 2, 1, 2, Loss::token_mean}});
  CHECK(make_legs({}, parse_only("")).size() == 66);
}

TEST_CASE("what --only cannot mean is refused") {
  CHECK(refusal([] { parse_only("tq=2"); }) == "--only: unknown name \"tq\" (did you mean \"tp\"?)");
  CHECK(refusal([] { parse_only("tp=2,tp=4"); }) == "--only: \"tp\" comes twice in \"tp=2,tp=4\"");
  CHECK(refusal([] { parse_only("tp=two"); }) == "--only tp: expected a number of at least 1, found \"two\"");
  CHECK(refusal([] { parse_only("tp"); }) == "--only tp: expected a number of at least 1, found \"\"");
  CHECK(refusal([] { parse_only("loss=mean"); }) == "--only loss: expected sample_mean or token_mean, found \"mean\"");
  CHECK(refusal([] { make_legs({}, parse_only("tp=16")); }) == "--only takes none of the 66 legs");
}

TEST_CASE("devices of an engine are a number of at least 1, and a leg of one device has an engine of one") {
  CHECK(parse_count("--n", "64", 64) == 64);
  CHECK(refusal([] { parse_count("--n", "65", 64); }) == "--n: expected a number from 1 to 64, found \"65\"");
  CHECK(parse_count("--n", "2") == 2);
  for (const char* text : {"", "0", "-1", "1.5", "two", "1,2", "99999999999"}) {
    CHECK(refusal([&] { parse_count("--n", text); }) ==
          "--n: expected a number from 1 to 4096, found \"" + std::string(text) + "\"");
  }
  CHECK(engine_devices({1, 1, 1, 1, 1, Loss::token_mean}, 2) == 1);
  CHECK(engine_devices({4, 1, 1, 1, 4, Loss::token_mean}, 2) == 2);
}

TEST_CASE("sizes are different numbers of at least 1, and some layout must divide every number of devices") {
  CHECK(parse_sizes("--tp", "1, 2,4") == std::vector<int>{1, 2, 4});
  for (const char* text : {"", "0", "-1", "1,,2", "x", "2.5", "99999999999"}) {
    CAPTURE(text);
    CHECK(refusal([&] { parse_sizes("--tp", text); }).rfind("--tp: expected numbers from 1 to", 0) == 0);
  }
  CHECK(refusal([] { parse_sizes("--tp", "2,2"); }) == "--tp: 2 comes twice in \"2,2\"");
  LegSizes sizes;
  sizes.num_gpus = {8, 3};
  sizes.tp = {2};
  CHECK(refusal([&] { make_legs(sizes, {}); }) == "no layout of TP 2, PP 1,2,4 and CP 1,2,4,8 divides 3 devices");
}
