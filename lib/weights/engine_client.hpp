// The control routes of one engine. Every call blocks for at most its deadline and throws Error{process_failed} naming
// the engine and the route.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "http/client.hpp"
#include "weights/engine_protocol.hpp"
#include "weights/version.hpp"

namespace vime::weights {

struct EngineAddress {
  int id = 0;
  std::string url;            // http://127.0.0.1:4711
  std::string token;          // "" for servers that want none
  std::string protocol = {};  // see protocol_named(): "" for vime's own
  std::string model = {};     // what its requests call the model
  std::string name() const { return "engine " + std::to_string(id); }
};

class EngineClient {
 public:
  // `client` outlives this. timeout: of the transfer calls; control_timeout: of all others.
  // buffer_bytes: of the pushes, see protocol_named().
  EngineClient(http::Client& client, EngineAddress address, std::chrono::milliseconds timeout,
               std::chrono::milliseconds control_timeout = std::chrono::seconds(60), uint64_t buffer_bytes = 0);

  const EngineAddress& address() const { return address_; }
  const EngineProtocol& protocol() const { return *protocol_; }

  void pause(const std::string& mode, bool clear_cache);
  void resume();
  // Not waited for, so that all engines may be told at the same time: see check().
  std::future<http::Outcome> send_pause(const std::string& mode, bool clear_cache);
  std::future<http::Outcome> send_resume();
  std::future<http::Outcome> ask_paused();
  bool says_paused(const http::Outcome& outcome) const;  // to ask_paused(); throws as check() does
  std::future<http::Outcome> send_sleep(int level);
  std::future<http::Outcome> send_wake_up(const std::vector<std::string>& tags);

  void init_weight_transfer(const Json& init_info);
  void start_weight_update();
  // The same, not waited for: a network transfer sends its bytes meanwhile.
  std::future<http::Outcome> send_init_weight_transfer(const Json& init_info);
  std::future<http::Outcome> send_start_weight_update();
  std::future<http::Outcome> send_update_weights(const Json& update_info);
  std::future<http::Outcome> send_finish_weight_update(int64_t version);
  // Loads the weights of a Hugging Face model folder. `first`: since the engine started, which may have been without
  // weights. The version is not the new one yet.
  void prepare_reload(bool first);
  std::future<http::Outcome> send_reload_weights(const std::string& folder);
  void publish_version(int64_t version);  // of what was loaded, where the engine tells its version
  // Throws what the outcome means.
  void check(const http::Outcome& outcome) const;

  // Never throws: an unreadable version is a value. Of an engine that does not tell it is what was recorded last.
  EngineVersion weight_version();
  // After a push that went without an error: of an engine that cannot tell.
  void record_version(int64_t version) { recorded_version_ = version; }
  int64_t recorded_version() const { return recorded_version_; }
  std::map<std::string, uint64_t> checksums();  // of every parameter, over the whole engine
  int world_size();

  // A request with this engine's address and token; of a body that is text already, likewise.
  http::Request request(const std::string& method, const std::string& path, const Json& body,
                        std::chrono::milliseconds timeout) const;
  http::Request text_request(const std::string& method, const std::string& path, std::string body,
                             std::chrono::milliseconds timeout) const;

 private:
  std::future<http::Outcome> send(const std::string& path, const Json& body, std::chrono::milliseconds timeout);
  http::Reply post(const std::string& path, const Json& body, std::chrono::milliseconds timeout);

  http::Client& client_;
  EngineAddress address_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds control_timeout_;
  std::shared_ptr<const EngineProtocol> protocol_;
  int64_t recorded_version_ = 0;  // of the last push; 0 = none
};

// 16 hexadecimal digits; `what` names them in errors.
uint64_t parse_checksum(const std::string& text, const std::string& what);
// {"checksums": {name: 16 hexadecimal digits}} of an engine's reply or a checkpoint; `what` names it in errors.
std::map<std::string, uint64_t> parse_checksums(const Json& reply, const std::string& what);

}  // namespace vime::weights
