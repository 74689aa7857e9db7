// bench_test_engine HABIT OPTIONS: the engine that the tests start, with its habit. Ends by SIGALRM after two minutes,
// so that a failing test leaves nothing behind.
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string>

#include "base/json.hpp"
#include "bench/weights_engine.hpp"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  ::alarm(120);
  if (argc != 3) return 2;
  const std::string habit = argv[1];
  if (habit == "serves") return vime::bench::serve_weights(vime::parse_json(argv[2], "options"));
  if (habit == "dies") return 3;
  if (habit == "babbles") std::cout << "ready when you are" << std::endl;
  if (habit == "has no port") std::cout << R"({"port": 70000})" << std::endl;
  if (habit == "listens no more") std::cout << R"({"port": 1})" << std::endl;
  for (;;) ::pause();  // "says nothing", and what the others do from here on
}
