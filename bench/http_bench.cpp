// Requests per second of vime's HTTP client against vime's HTTP server over loopback, one thread each.
//   http_bench [requests=50000] [in_flight=256] [body_bytes=256]
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <string>

#include "base/deadline.hpp"
#include "http/client.hpp"
#include "http/server.hpp"

namespace {

using namespace vime::http;

// Keeps `in_flight` requests under way until `count` are answered; gives the number of failures.
int run(Client& client, const Request& request, int count, int in_flight) {
  // Callbacks all run on the client's thread, one at a time; main only sends the first ones.
  std::atomic<int> sent{0};
  int finished = 0;
  int failed = 0;
  std::promise<void> all_done;
  std::function<void()> send_next = [&] {
    if (sent++ >= count) return;
    client.send(request, [&](Outcome outcome) {
      if (!outcome.answered || outcome.reply.status != 200) ++failed;
      if (++finished == count) {
        all_done.set_value();
      } else {
        send_next();
      }
    });
  };
  for (int i = 0; i < in_flight; ++i) send_next();
  all_done.get_future().wait();
  return failed;
}

int bench(int count, int in_flight, std::size_t body_bytes) {
  Server server{ServerOptions{}};
  server.route("POST", "/echo", [](const ServerRequest& request, Responder responder) {
    responder.respond({200, request.body});
  });
  server.start();
  Client client;
  Request request;
  request.method = "POST";
  request.url = "http://127.0.0.1:" + std::to_string(server.port()) + "/echo";
  request.body = std::string(body_bytes, 'x');
  request.what = "bench";
  const auto start = vime::SteadyClock::now();
  const int failed = run(client, request, count, in_flight);
  const double seconds = vime::seconds_since(start);
  std::printf("%d requests, %d in flight, %zu bytes: %.3f s, %.0f requests/s, %d failed\n", count, in_flight,
              body_bytes, seconds, count / seconds, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int count = argc > 1 ? std::stoi(argv[1]) : 50000;
    const int in_flight = argc > 2 ? std::stoi(argv[2]) : 256;
    const std::size_t body_bytes = argc > 3 ? std::stoul(argv[3]) : 256;
    return bench(count, in_flight, body_bytes);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "http_bench: %s\n", e.what());
    return 1;
  }
}
