#include "http/transfer.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/strings.hpp"

namespace vime::http {
namespace {

constexpr milliseconds kConnectTimeout{10000};
// A server that drops connections after 5 s of silence (uvicorn, and so vLLM) must not get a request just then.
constexpr long kMaxIdleSeconds = 3;

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string seconds_text(milliseconds time) {
  return format_seconds(static_cast<double>(time.count()) / 1000);
}

}  // namespace

Transfer::Transfer(Request request, std::function<void(Outcome)> done)
    : request_(std::move(request)),
      done_(std::move(done)),
      place_(request_.url.substr(0, request_.url.find('?'))),
      deadline_(std::max(request_.timeout, milliseconds(1))) {
  if (request_.what.empty()) request_.what = request_.method;
}

void Transfer::prepare(EasyHandle easy) {
  easy_ = std::move(easy);
  CURL* handle = easy_.get();
  curl_easy_setopt(handle, CURLOPT_URL, request_.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http");
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(handle, CURLOPT_PROXY, "");
  curl_easy_setopt(handle, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXAGE_CONN, kMaxIdleSeconds);
  // libcurl takes 0 as "no limit", which remaining() gives once the deadline has passed.
  const milliseconds left = std::max(deadline_.remaining(), milliseconds(1));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::min(left, kConnectTimeout).count()));
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, curl_text_);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, &Transfer::open_socket);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, this);
  curl_easy_setopt(handle, CURLOPT_PRIVATE, this);
  set_method();
  set_headers();
}

void Transfer::set_method() {
  CURL* handle = easy_.get();
  if (request_.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
    return;
  }
  if (request_.method == "GET" && request_.body.empty()) return;
  curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request_.body.size()));
  curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request_.body.c_str());
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
}

void Transfer::set_headers() {
  bool has_type = false;
  for (const auto& [name, value] : request_.headers) {
    has_type = has_type || lower_case(name) == "content-type";
    // libcurl leaves out a header without a value unless its name ends with a semicolon.
    const std::string line = value.empty() ? name + ";" : name + ": " + value;
    header_lines_ = curl_slist_append(header_lines_, line.c_str());
  }
  if (!has_type) {
    const char* line = request_.body.empty() ? "Content-Type:" : "Content-Type: application/json";
    header_lines_ = curl_slist_append(header_lines_, line);
  }
  // Without this a large body waits up to a second for "100 Continue".
  header_lines_ = curl_slist_append(header_lines_, "Expect:");
  curl_easy_setopt(easy_.get(), CURLOPT_HTTPHEADER, header_lines_);
}

std::size_t Transfer::on_body(char* data, std::size_t size, std::size_t count, void* self) {
  try {
    static_cast<Transfer*>(self)->outcome_.reply.body.append(data, size * count);
    return size * count;
  } catch (const std::bad_alloc&) {
    return 0;  // libcurl ends the transfer with CURLE_WRITE_ERROR
  }
}

std::size_t Transfer::on_header(char* data, std::size_t size, std::size_t count, void* self) {
  const std::string_view line(data, size * count);
  Headers& headers = static_cast<Transfer*>(self)->outcome_.reply.headers;
  const std::size_t colon = line.find(':');
  if (line.substr(0, 5) == "HTTP/") {
    headers.clear();  // an interim reply such as 100 came before
  } else if (colon != std::string_view::npos) {
    headers.emplace_back(lower_case(trim(line.substr(0, colon))), trim(line.substr(colon + 1)));
  }
  return size * count;
}

// A child process must not inherit the connection: the server would not see it close when this process ends.
curl_socket_t Transfer::open_socket(void* self, curlsocktype, curl_sockaddr* address) {
  const int fd = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0) static_cast<Transfer*>(self)->socket_errno_ = errno;
  return fd < 0 ? CURL_SOCKET_BAD : fd;
}

void Transfer::finish(CURLcode result) {
  if (result == CURLE_OK) {
    outcome_.answered = true;
    outcome_.reply.status = static_cast<int>(number(CURLINFO_RESPONSE_CODE));
    if (outcome_.reply.status / 100 != 2) outcome_.error = request_.what + ": " + status_text(outcome_.reply);
  } else {
    outcome_.timed_out = result == CURLE_OPERATION_TIMEDOUT;
    outcome_.error = request_.what + ": " + why_failed(result);
    outcome_.reply = Reply();
  }
  deliver();
}

void Transfer::fail(const std::string& reason) {
  outcome_ = Outcome();
  outcome_.error = request_.what + ": " + reason;
  deliver();
}

void Transfer::cancel() {
  outcome_ = Outcome();
  outcome_.cancelled = true;
  outcome_.error = request_.what + ": the client was closed before " + place_ + " answered";
  deliver();
}

void Transfer::deliver() {
  try {
    const auto done = std::move(done_);
    if (done) done(std::move(outcome_));
  } catch (const std::exception& e) {
    log::error("http", request_.what + ": the function that takes the outcome threw: " + e.what());
  }
}

std::string Transfer::why_failed(CURLcode result) const {
  switch (result) {
    case CURLE_OPERATION_TIMEDOUT:
      return why_timed_out();
    case CURLE_COULDNT_CONNECT:
      return why_not_connected();
    case CURLE_COULDNT_RESOLVE_HOST:
      return "unknown host in " + place_;
    case CURLE_URL_MALFORMAT:
      return "malformed URL \"" + place_ + "\", expected http://host:port/path";
    case CURLE_GOT_NOTHING:
      return place_ + " closed the connection without an answer";
    case CURLE_PARTIAL_FILE:
      return place_ + " closed the connection before its answer was complete";
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: {
      const long error_number = number(CURLINFO_OS_ERRNO);
      return "the connection to " + place_ + " broke" +
             (error_number != 0 ? ": " + errno_text(static_cast<int>(error_number)) : "");
    }
    case CURLE_UNSUPPORTED_PROTOCOL:
      if (number(CURLINFO_REQUEST_SIZE) > 0) return place_ + " answered something that is not HTTP";
      return "unsupported URL \"" + place_ + "\", expected http://host:port/path";
    case CURLE_WRITE_ERROR:
      return "no memory for the answer from " + place_;
    default:
      break;
  }
  return "no answer from " + place_ + ": " + (curl_text_[0] != '\0' ? curl_text_ : curl_easy_strerror(result));
}

std::string Transfer::why_not_connected() const {
  if (socket_errno_ != 0) return "open a connection to " + place_ + ": " + errno_text(socket_errno_);
  const auto error_number = static_cast<int>(number(CURLINFO_OS_ERRNO));
  if (error_number == ECONNREFUSED) return "connection refused by " + place_;
  return "connect to " + place_ + ": " + (error_number != 0 ? errno_text(error_number) : curl_text_);
}

std::string Transfer::why_timed_out() const {
  if (number(CURLINFO_REQUEST_SIZE) == 0) {
    return "no connection to " + place_ + " within " + seconds_text(std::min(deadline_.timeout(), kConnectTimeout));
  }
  const std::string within = place_ + " within " + seconds_text(deadline_.timeout());
  return (number(CURLINFO_RESPONSE_CODE) == 0 ? "no answer from " : "no complete answer from ") + within;
}

long Transfer::number(CURLINFO info) const {
  long value = 0;
  curl_easy_getinfo(easy_.get(), info, &value);
  return value;
}

}  // namespace vime::http
