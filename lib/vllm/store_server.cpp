#include "vllm/store_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "vllm/store_messages.hpp"

namespace vime::vllm {
namespace {

constexpr char kJoinKey[] = "init/";
constexpr int kAcceptRetryMs = 100;

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

std::string as_reply(const std::string& value) {
  return little_endian(value.size(), 8) + value;
}

sockaddr_in make_address(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw Error(ErrorKind::refused, "store: \"" + host + "\" is no numeric IPv4 address");
  }
  return address;
}

std::string address_text(const sockaddr_in& address) {
  char host[INET_ADDRSTRLEN] = "?";
  ::inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

struct Client {
  UniqueFd fd;
  std::string name;  // its address
  bool validated = false;
  std::vector<std::string> waits_for;  // keys of a WAIT that has no answer yet
  std::string received;                // not yet a whole message
  std::string replies;                 // not yet taken by the socket
};

}  // namespace

struct StoreServer::State {
  UniqueFd listener;
  uint16_t port = 0;
  UniqueFd wake_read, wake_write;
  mutable std::mutex mutex;
  std::map<std::string, std::string> values;  // guarded by mutex
  std::list<Client> clients;                  // the thread's own
  bool accept_later = false;                  // the thread's own: out of descriptors
  std::jthread thread;

  void run(const std::stop_token& stop);
  void wake();
  void accept_all();
  // Whether the client stays.
  bool serve(Client& client, short events);
  bool receive(Client& client);
  void answer_received(Client& client);
  bool send_replies(Client& client);
  void answer(Client& client, const StoreMessage& message);
  void answer_key(Client& client, const StoreMessage& message, const std::string& key);
  // Whether any was answered, which may have set keys for others.
  bool answer_waits();
  int64_t add(const std::string& key, int64_t number);
};

void StoreServer::State::wake() {
  const char byte = 0;
  // A full pipe wakes as well.
  [[maybe_unused]] const ssize_t wrote = ::write(wake_write.get(), &byte, 1);
}

void StoreServer::State::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<pollfd> fds = {{wake_read.get(), POLLIN, 0}, {accept_later ? -1 : listener.get(), POLLIN, 0}};
    for (const Client& client : clients) {
      // Who does not take replies is not asked for more.
      const bool takes = client.replies.size() < kMaxStoreMessage;
      const int events = (takes ? POLLIN : 0) | (client.replies.empty() ? 0 : POLLOUT);
      fds.push_back({client.fd.get(), static_cast<short>(events), 0});
    }
    if (::poll(fds.data(), fds.size(), accept_later ? kAcceptRetryMs : -1) < 0) {
      if (errno == EINTR) continue;
      log::error("vllm", "store: poll: " + errno_text(errno));
      return;
    }
    accept_later = false;
    char bytes[256];
    while (::read(wake_read.get(), bytes, sizeof bytes) > 0) {
    }
    auto client = clients.begin();
    for (std::size_t i = 2; i < fds.size(); ++i) {
      client = fds[i].revents == 0 || serve(*client, fds[i].revents) ? std::next(client) : clients.erase(client);
    }
    while (answer_waits()) {
    }
    if (fds[1].revents != 0) accept_all();
  }
}

void StoreServer::State::accept_all() {
  for (;;) {
    sockaddr_in address{};
    socklen_t length = sizeof address;
    UniqueFd fd(
        ::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        log::warning("vllm", "store: accept a connection: " + errno_text(errno));
        accept_later = true;
      }
      return;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients.emplace_back();
    clients.back().fd = std::move(fd);
    clients.back().name = address_text(address);
  }
}

bool StoreServer::State::serve(Client& client, short events) {
  try {
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !receive(client)) return false;
    // Ends when nothing whole is left to answer, or the socket takes no more.
    for (;;) {
      answer_received(client);
      if (client.replies.empty()) return true;
      if (!send_replies(client)) return false;
      if (!client.replies.empty()) return true;
    }
  } catch (const std::exception& error) {
    log::warning("vllm", "store: closed the connection of " + client.name + ": " + error.what());
    return false;
  }
}

bool StoreServer::State::receive(Client& client) {
  char bytes[1 << 16];
  const ssize_t got = ::recv(client.fd.get(), bytes, sizeof bytes, 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) {
    if (client.received.empty()) return false;
    throw Error(ErrorKind::refused, "it ended in the middle of a message");
  }
  client.received.append(bytes, static_cast<std::size_t>(got));
  return true;
}

void StoreServer::State::answer_received(Client& client) {
  std::string_view left = client.received;
  while (client.replies.size() < kMaxStoreMessage) {
    const auto message = take_store_message(left);
    if (!message) break;
    answer(client, *message);
  }
  client.received.erase(0, client.received.size() - left.size());
}

bool StoreServer::State::send_replies(Client& client) {
  while (!client.replies.empty()) {
    const ssize_t sent = ::send(client.fd.get(), client.replies.data(), client.replies.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    client.replies.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

void StoreServer::State::answer(Client& client, const StoreMessage& message) {
  if (message.command == StoreCommand::validate) {
    if (message.number != kStoreMagic) throw Error(ErrorKind::refused, "its first bytes are not those of a TCPStore");
    client.validated = true;
    return;
  }
  if (!client.validated) throw Error(ErrorKind::refused, "its first bytes are not those of a TCPStore");
  if (message.command == StoreCommand::cancel_wait) {
    client.waits_for.clear();
    client.replies += '\1';
    return;
  }
  if (!client.waits_for.empty()) throw Error(ErrorKind::refused, "it asks while it waits for " + client.waits_for[0]);
  const std::lock_guard lock(mutex);
  switch (message.command) {
    case StoreCommand::ping:
      client.replies += little_endian(static_cast<uint64_t>(message.number), 4);
      return;
    case StoreCommand::count_keys:
      client.replies += little_endian(values.size(), 8);
      return;
    case StoreCommand::wait:
      client.waits_for = message.keys;
      std::erase_if(client.waits_for, [&](const std::string& key) { return values.contains(key); });
      if (client.waits_for.empty()) client.replies += '\0';
      return;
    case StoreCommand::check: {
      const bool all = std::ranges::all_of(message.keys, [&](const std::string& key) { return values.contains(key); });
      client.replies += all ? '\0' : '\1';
      return;
    }
    case StoreCommand::multi_set:
      for (std::size_t i = 0; i < message.keys.size(); ++i) values[message.keys[i]] = message.values[i];
      return;
    case StoreCommand::multi_get:
      for (const std::string& key : message.keys) answer_key(client, {StoreCommand::get, {}, {}, 0}, key);
      return;
    default:
      answer_key(client, message, message.keys[0]);
  }
}

// With the mutex held.
void StoreServer::State::answer_key(Client& client, const StoreMessage& message, const std::string& key) {
  const auto found = values.find(key);
  switch (message.command) {
    case StoreCommand::set:
      values[key] = message.values[0];
      return;
    case StoreCommand::append:
      values[key] += message.values[0];
      return;
    case StoreCommand::add:
      client.replies += little_endian(static_cast<uint64_t>(add(key, message.number)), 8);
      return;
    case StoreCommand::delete_key:
      client.replies += little_endian(values.erase(key), 8);
      return;
    case StoreCommand::get:
      if (found == values.end()) throw Error(ErrorKind::refused, "it wants the value of " + key + ", which has none");
      client.replies += as_reply(found->second);
      return;
    case StoreCommand::compare_set: {
      const std::string& expected = message.values[0];
      // An absent key counts as an empty value; who expected another gets back what it expected.
      if (found == values.end() ? expected.empty() : found->second == expected) values[key] = message.values[1];
      const auto now = values.find(key);
      client.replies += as_reply(now == values.end() ? expected : now->second);
      return;
    }
    default:
      VIME_CHECK(false, "a command without a key");
  }
}

// With the mutex held. Counters are kept as decimal text.
int64_t StoreServer::State::add(const std::string& key, int64_t number) {
  std::string& value = values[key];
  int64_t before = 0;
  const char* const end = value.data() + value.size();
  if (!value.empty() && std::from_chars(value.data(), end, before).ptr != end) {
    throw Error(ErrorKind::refused, "it adds to " + key + ", which is no number");
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(before, number, &sum)) throw Error(ErrorKind::refused, "it adds too much to " + key);
  value = std::to_string(sum);
  return sum;
}

bool StoreServer::State::answer_waits() {
  bool any = false;
  for (auto client = clients.begin(); client != clients.end();) {
    bool answered = false;
    {
      const std::lock_guard lock(mutex);
      answered = std::erase_if(client->waits_for, [&](const std::string& key) { return values.contains(key); }) > 0 &&
                 client->waits_for.empty();
    }
    if (answered) client->replies += '\0';
    any = any || answered;
    client = !answered || serve(*client, 0) ? std::next(client) : clients.erase(client);
  }
  return any;
}

StoreServer::StoreServer(const std::string& host, uint16_t port) : state_(std::make_unique<State>()) {
  const std::string what = "store: listen on " + host + ":" + std::to_string(port);
  sockaddr_in address = make_address(host, port);
  state_->listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!state_->listener) throw_errno(ErrorKind::exhausted, what);
  const int on = 1;
  ::setsockopt(state_->listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t length = sizeof address;
  if (::bind(state_->listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(state_->listener.get(), 1024) != 0 ||
      ::getsockname(state_->listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw_errno(ErrorKind::exhausted, what);
  }
  state_->port = ntohs(address.sin_port);
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) throw_errno(ErrorKind::exhausted, what);
  state_->wake_read = UniqueFd(pipe_fds[0]);
  state_->wake_write = UniqueFd(pipe_fds[1]);
  state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->run(stop); });
}

StoreServer::~StoreServer() {
  state_->thread.request_stop();
  state_->wake();
  state_->thread.join();
}

uint16_t StoreServer::port() const {
  return state_->port;
}

void StoreServer::set(const std::string& key, const std::string& value) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->values[key] = value;
  }
  state_->wake();
}

std::optional<std::string> StoreServer::value(const std::string& key) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->values.find(key);
  if (found == state_->values.end()) return std::nullopt;
  return found->second;
}

int64_t StoreServer::clients_joined() const {
  const std::string text = value(kJoinKey).value_or("0");
  int64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

}  // namespace vime::vllm
