// What a rollout request costs the driver: body, HTTP, parsing, routing. A process of its own answers every completion
// at once with a reply as vLLM's and as the embedded engine's; the client's CPU time and the wall time are divided by
// the requests.
//   fleet_bench [requests] [in flight] [tokens of an answer]
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/random.hpp"
#include "fleet/fleet.hpp"
#include "http/server.hpp"

using namespace vime;

namespace {

Json reply_of(int64_t tokens, bool spans) {
  Json ids = Json::array(), logprobs = Json::array(), texts = Json::array(), offsets = Json::array();
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(1000 + i);
    logprobs.push_back(-1.25 - 0.001 * static_cast<double>(i));
    texts.push_back("token_id:" + std::to_string(1000 + i));
    offsets.push_back(4 * i);
  }
  Json choice = {
      {"index", 0},
      {"text", "some text"},
      {"token_ids", ids},
      {"logprobs",
       {{"tokens", texts}, {"token_logprobs", logprobs}, {"top_logprobs", nullptr}, {"text_offset", offsets}}},
      {"finish_reason", "length"},
      {"stop_reason", nullptr}};
  if (spans) choice["weight_versions"] = Json::array({{{"version", "1"}, {"start", 0}, {"end", tokens}}});
  return {{"id", "cmpl-0"}, {"object", "text_completion"}, {"choices", Json::array({choice})}};
}

[[noreturn]] void serve(int port_fd, const std::string& body) {
  http::Server server({});
  server.route("POST", "/v1/completions", [body](const http::ServerRequest&, http::Responder responder) {
    responder.respond({200, body});
  });
  server.start();
  const uint16_t port = server.port();
  if (::write(port_fd, &port, sizeof port) != sizeof port) ::_exit(1);
  for (;;) ::pause();
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void measure(const char* name, const std::string& protocol, int64_t requests, int64_t in_flight, int64_t tokens) {
  int fds[2];
  if (::pipe(fds) != 0) std::exit(1);
  const pid_t server = ::fork();
  if (server == 0) serve(fds[1], reply_of(tokens, protocol.empty()).dump());
  uint16_t port = 0;
  if (::read(fds[0], &port, sizeof port) != sizeof port) std::exit(1);
  {
    http::Client client;
    fleet::Supervisor supervisor(VIME_BINARY, random_token(), {});
    fleet::Fleet fleet(client, supervisor, {{0, "http://127.0.0.1:" + std::to_string(port), "", protocol, "m"}},
                       {milliseconds(60'000), milliseconds(60'000), in_flight});
    std::vector<fleet::GenerateJob> jobs(static_cast<size_t>(requests));
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].name = "sample " + std::to_string(i);
      jobs[i].prompt.assign(64, 7);
      jobs[i].session = static_cast<int64_t>(i / 8);
    }
    fleet.generate(jobs, [](size_t, const fleet::Generation&) {});
    const auto begin = SteadyClock::now();
    const double cpu = cpu_seconds();
    fleet.generate(jobs, [](size_t, const fleet::Generation&) {});
    const double wall = seconds_since(begin);
    std::printf(
        "%-9s %7lld requests, %4lld in flight, %4lld tokens: %6.1f us of the client's CPU, %6.1f us of wall time "
        "each\n",
        name, static_cast<long long>(requests), static_cast<long long>(in_flight), static_cast<long long>(tokens),
        1e6 * (cpu_seconds() - cpu) / static_cast<double>(requests), 1e6 * wall / static_cast<double>(requests));
    supervisor.shutdown(milliseconds(1000));
  }
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int at, int64_t usual) -> int64_t { return argc > at ? std::atoll(argv[at]) : usual; };
  const int64_t requests = argument(1, 20'000), in_flight = argument(2, 512);
  for (const int64_t tokens : {int64_t{1}, argument(3, 64)}) {
    measure("embedded", "", requests, in_flight, tokens);
    measure("vLLM", "vllm 0.25.1", requests, in_flight, tokens);
  }
}
