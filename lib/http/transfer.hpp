// One request of the client on its way through libcurl: options of the handle, what has arrived, and the sentence that
// says why nothing did. Private to the room, because it shows libcurl types. Used by one thread at a time.
#pragma once

#include <curl/curl.h>

#include <functional>
#include <memory>
#include <string>

#include "base/deadline.hpp"
#include "http/client.hpp"

namespace vime::http {

struct EasyDelete {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
using EasyHandle = std::unique_ptr<CURL, EasyDelete>;

class Transfer {
 public:
  Transfer(Request request, std::function<void(Outcome)> done);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() { curl_slist_free_all(header_lines_); }

  // Sets a fresh or reset handle up. The handle refers to this object until release().
  void prepare(EasyHandle easy);
  CURL* easy() const { return easy_.get(); }
  EasyHandle release() { return std::move(easy_); }

  // Calls `done`, once, from the result of a finished transfer or with a reason for there being none.
  void finish(CURLcode result);
  void fail(const std::string& reason);
  void cancel();

 private:
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
  static curl_socket_t open_socket(void* self, curlsocktype purpose, curl_sockaddr* address);
  void set_method();
  void set_headers();
  std::string why_failed(CURLcode result) const;
  std::string why_not_connected() const;
  std::string why_timed_out() const;
  long number(CURLINFO info) const;
  void deliver();

  Request request_;
  std::function<void(Outcome)> done_;
  std::string place_;  // the URL without its query
  Deadline deadline_;
  EasyHandle easy_;
  curl_slist* header_lines_ = nullptr;
  Outcome outcome_;
  int socket_errno_ = 0;
  char curl_text_[CURL_ERROR_SIZE] = "";
};

}  // namespace vime::http
