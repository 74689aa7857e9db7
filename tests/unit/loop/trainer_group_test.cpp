// Commands to all trainer ranks, against stand-ins that answer what the test lets them answer.
#include "loop/trainer_group.hpp"

#include <doctest/doctest.h>

#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "http/server.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

Json failure(const std::string& message, const std::string& kind, bool bystander) {
  return {{"error", {{"message", message}, {"hint", "a cure"}, {"kind", kind}, {"bystander", bystander}}}};
}

// What the command to two ranks throws when they answer so; kind and text.
std::pair<ErrorKind, std::string> thrown(const std::array<Json, 2>& answers) {
  http::Server ranks[2] = {http::Server({}), http::Server({})};
  std::vector<std::string> urls;
  for (size_t rank = 0; rank < 2; ++rank) {
    const Json answer = answers[rank];
    ranks[rank].route("POST", "/train", [answer](const http::ServerRequest&, http::Responder responder) {
      responder.respond({answer.contains("error") ? 500 : 200, answer.dump()});
    });
    ranks[rank].start();
    urls.push_back("http://127.0.0.1:" + std::to_string(ranks[rank].port()));
  }
  http::Client client;
  fleet::Supervisor supervisor(VIME_BINARY, random_token(), {});
  TrainerGroup group(client, supervisor, urls, "", milliseconds(5000));
  try {
    group.call_all("/train", Json::object());
  } catch (const Error& error) {
    CHECK(supervisor.heed_interrupts(true));  // Ctrl-C is heeded again
    return {error.kind(), error.what()};
  }
  return {ErrorKind::internal, ""};
}

}  // namespace

TEST_CASE("the rank that failed is named, not the first that lost it, and a full disk or memory keeps its kind") {
  const auto [kind, text] = thrown({failure("rank 1 left the group", "process_failed", true),
                                    failure("write /full: No space left on device", "exhausted", false)});
  CHECK(kind == ErrorKind::exhausted);
  CHECK(text == "trainer rank 1: /train: write /full: No space left on device (a cure)");
}

TEST_CASE("where every rank was left by another the first is named, and any other failure is a process's") {
  const auto [kind, text] = thrown({failure("rank 1 left the group", "process_failed", true),
                                    failure("rank 0 left the group", "process_failed", true)});
  CHECK(kind == ErrorKind::process_failed);
  CHECK(text.find("trainer rank 0: /train: rank 1 left the group") == 0);
  const auto refused = thrown({Json::object(), failure("not those that were saved", "refused", false)});
  CHECK(refused.first == ErrorKind::process_failed);
  CHECK(refused.second.find("trainer rank 1: /train: not those that were saved") == 0);
}
