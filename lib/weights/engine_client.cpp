#include "weights/engine_client.hpp"

#include <charconv>
#include <utility>

namespace vime::weights {

EngineClient::EngineClient(http::Client& client, EngineAddress address, std::chrono::milliseconds timeout,
                           std::chrono::milliseconds control_timeout, uint64_t buffer_bytes)
    : client_(client),
      address_(std::move(address)),
      timeout_(timeout),
      control_timeout_(control_timeout),
      protocol_(protocol_named(address_.protocol, buffer_bytes)) {}

http::Request EngineClient::text_request(const std::string& method, const std::string& path, std::string body,
                                         std::chrono::milliseconds timeout) const {
  http::Request request;
  request.method = method;
  request.url = address_.url + path;
  request.what = address_.name() + ": " + path.substr(0, path.find('?'));
  request.timeout = timeout;
  request.body = std::move(body);
  if (!address_.token.empty()) request.headers.push_back(protocol_->secret_header(address_.token));
  return request;
}

http::Request EngineClient::request(const std::string& method, const std::string& path, const Json& body,
                                    std::chrono::milliseconds timeout) const {
  return text_request(method, path, body.is_null() ? std::string() : body.dump(), timeout);
}

std::future<http::Outcome> EngineClient::send(const std::string& path, const Json& body,
                                              std::chrono::milliseconds timeout) {
  return client_.send(request("POST", path, body, timeout));
}

http::Reply EngineClient::post(const std::string& path, const Json& body, std::chrono::milliseconds timeout) {
  return client_.call(request("POST", path, body, timeout));
}

void EngineClient::pause(const std::string& mode, bool clear_cache) {
  check(send_pause(mode, clear_cache).get());
}

void EngineClient::resume() {
  check(send_resume().get());
}

std::future<http::Outcome> EngineClient::send_pause(const std::string& mode, bool clear_cache) {
  return send("/pause?mode=" + mode + "&clear_cache=" + (clear_cache ? "true" : "false"), Json::object(),
              control_timeout_);
}

std::future<http::Outcome> EngineClient::send_resume() {
  return send("/resume", Json::object(), control_timeout_);
}

std::future<http::Outcome> EngineClient::ask_paused() {
  return client_.send(request("GET", "/is_paused", nullptr, control_timeout_));
}

bool EngineClient::says_paused(const http::Outcome& outcome) const {
  check(outcome);
  const std::string what = address_.name() + ": /is_paused";
  return json_bool(parse_json(outcome.reply.body, what), "is_paused", what);
}

std::future<http::Outcome> EngineClient::send_sleep(int level) {
  return send("/sleep?level=" + std::to_string(level), Json::object(), control_timeout_);
}

std::future<http::Outcome> EngineClient::send_wake_up(const std::vector<std::string>& tags) {
  std::string path = "/wake_up";
  for (size_t i = 0; i < tags.size(); ++i) path += (i == 0 ? "?tags=" : "&tags=") + tags[i];
  return send(path, Json::object(), control_timeout_);
}

void EngineClient::init_weight_transfer(const Json& init_info) {
  check(send_init_weight_transfer(init_info).get());
}

void EngineClient::start_weight_update() {
  check(send_start_weight_update().get());
}

std::future<http::Outcome> EngineClient::send_init_weight_transfer(const Json& init_info) {
  return send("/init_weight_transfer_engine", {{"init_info", init_info}}, timeout_);
}

std::future<http::Outcome> EngineClient::send_start_weight_update() {
  return send("/start_weight_update", protocol_->start_body(), timeout_);
}

std::future<http::Outcome> EngineClient::send_update_weights(const Json& update_info) {
  return send("/update_weights", {{"update_info", update_info}}, timeout_);
}

std::future<http::Outcome> EngineClient::send_finish_weight_update(int64_t version) {
  return send("/finish_weight_update", protocol_->finish_body(version), timeout_);
}

void EngineClient::prepare_reload(bool first) {
  const Json body = first ? protocol_->first_reload_body() : Json();
  if (!body.is_null()) post("/collective_rpc", body, timeout_);
}

std::future<http::Outcome> EngineClient::send_reload_weights(const std::string& folder) {
  return send("/collective_rpc", {{"method", "reload_weights"}, {"kwargs", {{"weights_path", folder}}}}, timeout_);
}

void EngineClient::publish_version(int64_t version) {
  if (protocol_->tells_version()) {
    post("/update_weight_version", {{"new_version", std::to_string(version)}}, control_timeout_);
  }
}

void EngineClient::check(const http::Outcome& outcome) const {
  if (!outcome.error.empty()) throw Error(ErrorKind::process_failed, outcome.error);
}

EngineVersion EngineClient::weight_version() {
  EngineVersion version{address_.name(), false, ""};
  if (!protocol_->tells_version()) return {address_.name(), true, std::to_string(recorded_version_)};
  try {
    const http::Reply reply = client_.call(request("GET", "/weight_info", nullptr, control_timeout_));
    version.text =
        json_string(parse_json(reply.body, address_.name() + ": /weight_info"), "weight_version", "/weight_info");
    version.readable = true;
  } catch (const Error& error) {
    version.text = error.what();
  }
  return version;
}

std::map<std::string, uint64_t> EngineClient::checksums() {
  const std::string what = address_.name() + ": /weight_checker";
  return parse_checksums(parse_json(post("/weight_checker", {{"action", "checksum"}}, timeout_).body, what), what);
}

uint64_t parse_checksum(const std::string& text, const std::string& what) {
  uint64_t sum = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sum, 16);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorKind::process_failed, what + " is no hexadecimal number: " + text);
  }
  return sum;
}

std::map<std::string, uint64_t> parse_checksums(const Json& reply, const std::string& what) {
  std::map<std::string, uint64_t> sums;
  const Json& named = json_member(reply, "checksums", what);
  for (const auto& [name, unused] : named.items()) {
    sums[name] = parse_checksum(json_string(named, name, what), what + ": checksum of " + name);
  }
  return sums;
}

int EngineClient::world_size() {
  const http::Reply reply = client_.call(request("GET", "/get_world_size", nullptr, control_timeout_));
  const std::string what = address_.name() + ": /get_world_size";
  return static_cast<int>(json_int(parse_json(reply.body, what), "world_size", what));
}

}  // namespace vime::weights
