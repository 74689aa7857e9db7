#include "http/client.hpp"

#include <curl/curl.h>

#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "http/descriptors.hpp"
#include "http/transfer.hpp"

namespace vime::http {
namespace {

constexpr int kPollMs = 10000;           // a new request, bytes and libcurl's own timers wake the thread earlier
constexpr long kKeptConnections = 4096;  // idle ones that wait for reuse
constexpr std::size_t kKeptHandles = 256;

void start_libcurl() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) {
    throw Error(ErrorKind::exhausted, std::string("start libcurl: ") + curl_easy_strerror(started));
  }
}

struct MultiDelete {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};

}  // namespace

struct Client::State {
  State();
  void shut_down();
  void enqueue(std::unique_ptr<Transfer> transfer);
  void run(const std::stop_token& stop);
  void start_queued();
  void start(std::unique_ptr<Transfer> transfer);
  void finish_done();
  std::unique_ptr<Transfer> take(CURL* easy);
  void fail_all(const std::string& reason);
  void cancel_all();

  std::unique_ptr<CURLM, MultiDelete> multi;
  std::mutex mutex;
  std::vector<std::unique_ptr<Transfer>> queue;  // guarded by mutex
  bool closed = false;                           // guarded by mutex: the thread takes nothing from the queue any more
  // The thread's own:
  std::unordered_map<CURL*, std::unique_ptr<Transfer>> in_flight;
  std::vector<EasyHandle> spare_handles;
  std::jthread thread;
};

Client::State::State() {
  raise_descriptor_limit();
  start_libcurl();
  multi.reset(curl_multi_init());
  if (!multi) throw Error(ErrorKind::exhausted, "start the HTTP client: libcurl gave no handle");
  curl_multi_setopt(multi.get(), CURLMOPT_MAX_HOST_CONNECTIONS, 0L);
  curl_multi_setopt(multi.get(), CURLMOPT_MAX_TOTAL_CONNECTIONS, 0L);
  curl_multi_setopt(multi.get(), CURLMOPT_MAXCONNECTS, kKeptConnections);
  thread = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Client::State::shut_down() {
  thread.request_stop();
  curl_multi_wakeup(multi.get());
  thread.join();
}

void Client::State::enqueue(std::unique_ptr<Transfer> transfer) {
  {
    const std::lock_guard lock(mutex);
    if (!closed) {
      queue.push_back(std::move(transfer));
      if (queue.size() > 1) return;  // the first one has woken the thread
    }
  }
  if (transfer) {
    transfer->cancel();
  } else {
    curl_multi_wakeup(multi.get());
  }
}

void Client::State::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    start_queued();
    int running = 0;
    CURLMcode result = curl_multi_perform(multi.get(), &running);
    finish_done();
    if (result == CURLM_OK) result = curl_multi_poll(multi.get(), nullptr, 0, kPollMs, nullptr);
    if (result != CURLM_OK) fail_all(std::string("libcurl: ") + curl_multi_strerror(result));
  }
  cancel_all();
}

void Client::State::start_queued() {
  std::vector<std::unique_ptr<Transfer>> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(queue);
  }
  for (auto& transfer : taken) start(std::move(transfer));
}

void Client::State::start(std::unique_ptr<Transfer> transfer) {
  EasyHandle easy;
  if (spare_handles.empty()) {
    easy.reset(curl_easy_init());
  } else {
    easy = std::move(spare_handles.back());
    spare_handles.pop_back();
  }
  if (!easy) {
    transfer->fail("libcurl gave no handle");
    return;
  }
  transfer->prepare(std::move(easy));
  CURL* const key = transfer->easy();
  const CURLMcode result = curl_multi_add_handle(multi.get(), key);
  if (result != CURLM_OK) {
    transfer->fail(std::string("libcurl: ") + curl_multi_strerror(result));
    return;
  }
  in_flight.emplace(key, std::move(transfer));
}

void Client::State::finish_done() {
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode result = message->data.result;  // `message` is gone once the handle is removed
    const auto transfer = take(message->easy_handle);
    transfer->finish(result);
    if (spare_handles.size() < kKeptHandles) {
      EasyHandle easy = transfer->release();
      curl_easy_reset(easy.get());
      spare_handles.push_back(std::move(easy));
    }
  }
}

std::unique_ptr<Transfer> Client::State::take(CURL* easy) {
  const auto found = in_flight.find(easy);
  VIME_CHECK(found != in_flight.end(), "libcurl finished an unknown transfer");
  auto transfer = std::move(found->second);
  in_flight.erase(found);
  curl_multi_remove_handle(multi.get(), easy);
  return transfer;
}

void Client::State::fail_all(const std::string& reason) {
  log::error("http", reason);
  while (!in_flight.empty()) take(in_flight.begin()->first)->fail(reason);
}

void Client::State::cancel_all() {
  std::vector<std::unique_ptr<Transfer>> waiting;
  {
    const std::lock_guard lock(mutex);
    closed = true;
    waiting.swap(queue);
  }
  while (!in_flight.empty()) take(in_flight.begin()->first)->cancel();
  for (const auto& transfer : waiting) transfer->cancel();
}

Client::Client() : state_(std::make_unique<State>()) {}

// Before state_ goes, because a callback may still call send().
Client::~Client() {
  state_->shut_down();
}

void Client::send(Request request, std::function<void(Outcome)> done) {
  state_->enqueue(std::make_unique<Transfer>(std::move(request), std::move(done)));
}

std::future<Outcome> Client::send(Request request) {
  // std::function must be copyable, a promise is not.
  const auto promise = std::make_shared<std::promise<Outcome>>();
  auto future = promise->get_future();
  send(std::move(request), [promise](Outcome outcome) { promise->set_value(std::move(outcome)); });
  return future;
}

Reply Client::call(Request request) {
  VIME_CHECK(std::this_thread::get_id() != state_->thread.get_id(), "Client::call would wait for its own thread");
  Outcome outcome = send(std::move(request)).get();
  if (!outcome.error.empty()) throw Error(ErrorKind::process_failed, outcome.error);
  return std::move(outcome.reply);
}

}  // namespace vime::http
