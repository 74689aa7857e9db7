// A server with the routes that most cases need, and waits that cannot last for ever.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "http/client.hpp"
#include "http/server.hpp"

namespace testing {

inline constexpr std::chrono::seconds kPatience{20};

template <typename T>
T get_within(std::future<T> future) {
  REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
  return future.get();
}

// Requests whose answer the test gives, from whatever thread.
class Held {
 public:
  struct Item {
    std::string body;
    vime::http::Responder responder;
  };

  void add(const std::string& body, vime::http::Responder responder) {
    const std::lock_guard lock(mutex_);
    items_.push_back({body, std::move(responder)});
    changed_.notify_all();
  }

  // Waits until `count` requests are held at the same time, and takes them.
  std::vector<Item> take(std::size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, [&] { return items_.size() >= count; }));
    return std::exchange(items_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;
};

// POST /echo answers its body, /held waits for the test.
struct TestServer {
  explicit TestServer(vime::http::ServerOptions options = {}) : server(std::move(options)) {
    server.route("POST", "/echo", [](const vime::http::ServerRequest& request, vime::http::Responder responder) {
      responder.respond({200, request.body});
    });
    server.route("POST", "/held", [this](const vime::http::ServerRequest& request, vime::http::Responder responder) {
      held.add(request.body, std::move(responder));
    });
  }

  TestServer& start() {
    server.start();
    return *this;
  }

  vime::http::Request request(const std::string& method, const std::string& path, std::string body = "") const {
    vime::http::Request made;
    made.method = method;
    made.url = "http://127.0.0.1:" + std::to_string(server.port()) + path;
    made.body = std::move(body);
    made.what = "test";
    made.timeout = kPatience;
    return made;
  }

  Held held;  // outlives the server: its thread adds to it
  vime::http::Server server;
};

}  // namespace testing
