// The nccl backend without NCCL: the store's bytes, the group, packed and unpacked broadcasts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "base/strings.hpp"
#include "checkpoints.hpp"
#include "payloads.hpp"
#include "served.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

// A listening port and its connections; every wait ends after 20 s with a failed REQUIRE.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    limit(fd_.get());
    REQUIRE(::listen(fd_.get(), 16) == 0);
  }
  uint16_t port() const { return port_; }
  UniqueFd accept() const {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(fd.get() >= 0);
    limit(fd.get());
    return fd;
  }

 private:
  static void limit(int fd) {
    const timeval time{20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  }
  UniqueFd fd_;
  uint16_t port_ = 0;
};

std::string receive(const UniqueFd& fd, std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t got = 0;
  while (got < count) {
    const ssize_t piece = ::recv(fd.get(), bytes.data() + got, count - got, 0);
    REQUIRE(piece > 0);
    got += static_cast<std::size_t>(piece);
  }
  return bytes;
}

void send(const UniqueFd& fd, const void* data, std::size_t count) {
  const char* at = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t sent = ::send(fd.get(), at, count, MSG_NOSIGNAL);
    REQUIRE(sent > 0);
    at += sent;
    count -= static_cast<std::size_t>(sent);
  }
}

template <typename Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

// One worker's conversation with the store, which must send just this.
void serve_store(const UniqueFd& fd, const std::string& value) {
  CHECK(receive(fd, 5) == std::string("\x00\xce\xf7\x85\x3c", 5));
  const std::string ping = receive(fd, 5);
  CHECK(ping[0] == '\x0d');
  send(fd, ping.data() + 1, 4);
  CHECK(receive(fd, 22) == "\x04" + raw(uint64_t{5}) + "init/" + raw(int64_t{1}));
  send(fd, raw(int64_t{1}).data(), 8);
  const std::string key = "/broadcast_from/0/0";
  CHECK(receive(fd, 36) == "\x06" + raw(uint64_t{1}) + raw(uint64_t{key.size()}) + key);
  send(fd, "\0", 1);
  CHECK(receive(fd, 28) == "\x03" + raw(uint64_t{key.size()}) + key);
  const std::string reply = raw(uint64_t{value.size()}) + value;
  send(fd, reply.data(), reply.size());
}

ServeOptions options_of(const std::string& version, int workers, const std::string& trace = "") {
  return {.version = version,
          .arguments = {"--weight-transfer-config", R"({"backend":"nccl"})", "-tp", std::to_string(workers)},
          .env = {"VIME_STAND_IN_TRACE=" + trace}};
}

// The trainer's end: rank 0 of one server's group.
class Trainer {
 public:
  Trainer(Served& served, int workers, Json more = Json::object()) : served_(served), workers_(workers) {
    Json info = {{"master_address", "127.0.0.1"},
                 {"master_port", store_.port()},
                 {"rank_offset", 1},
                 {"world_size", 1 + workers}};
    info.update(more);
    posted_ = served.send("POST", "/init_weight_transfer_engine", Json{{"init_info", info}}.dump());
  }
  void serve_stores(const std::string& pickle) {
    for (int worker = 0; worker < workers_; ++worker) serve_store(store_.accept(), pickle);
  }
  http::Reply init() {
    serve_stores(pickled_unique_id("tcp:127.0.0.1:" + std::to_string(data_.port())));
    std::vector<uint32_t> ranks;
    for (int worker = 0; worker < workers_; ++worker) {
      links_.push_back(data_.accept());
      const std::string hello = receive(links_.back(), 8);
      uint32_t words[2];
      std::memcpy(words, hello.data(), 8);
      ranks.push_back(words[0]);
      CHECK(words[1] == static_cast<uint32_t>(1 + workers_));
    }
    CHECK(std::accumulate(ranks.begin(), ranks.end(), 0u) == (workers_ == 1 ? 1u : 3u));
    for (const UniqueFd& link : links_) receive(link, sizeof(float));
    for (const UniqueFd& link : links_) send(link, raw(0.0f).data(), sizeof(float));
    return posted();
  }
  http::Reply posted() { return Served::reply(std::move(posted_)); }
  void broadcast(const std::string& bytes) const {
    for (const UniqueFd& link : links_) send(link, bytes.data(), bytes.size());
  }

 private:
  Served& served_;
  int workers_;
  Listener store_;
  Listener data_;
  std::vector<UniqueFd> links_;
  std::future<http::Outcome> posted_;
};

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

}  // namespace

TEST_CASE("a push over the group gives what loading the checkpoint gives, packed and one by one") {
  const Checkpoint checkpoint = changed(read_checkpoint(VIME_TEST_DATA "/models/qwen3"));
  const TempDir folder;
  write_checkpoint(checkpoint, folder.path());
  Served expected({.model = folder.path().string()});
  for (const char* version : {"G2a", "G2c", "G3"}) {
    for (const bool packed : {false, true}) {
      CAPTURE(version);
      CAPTURE(packed);
      const bool newest = std::string(version) == "G3";
      const int workers = newest ? 2 : 1;
      const TempDir traces;
      const std::string trace = (traces.path() / "trace").string();
      Served served(options_of(version, workers, trace));
      constexpr int64_t kBuffer = 20000;
      const Json packing = {{"packed", packed}, {"packed_buffer_size_bytes", kBuffer}};
      Trainer trainer(served, workers, newest ? packing : Json::object());
      const http::Reply initialized = trainer.init();
      REQUIRE_MESSAGE(initialized.status == 200, initialized.body);
      CHECK(served.post("/start_weight_update", "{}").status == 200);
      Json info = update_lists(checkpoint, 0, checkpoint.size());
      if (!newest) info.update(packing);
      auto posted = served.send("POST", "/update_weights", Json{{"update_info", info}}.dump());
      std::vector<std::size_t> chunks;  // sizes, by the rule as the sender has it
      std::size_t chunk = 0;
      for (const Tensor& tensor : checkpoint) {
        trainer.broadcast(bytes_of(tensor));
        chunk += tensor.bytes.size();
        if (!packed || chunk > kBuffer) chunks.push_back(std::exchange(chunk, 0));
      }
      if (chunk > 0) chunks.push_back(chunk);
      CHECK(Served::reply(std::move(posted)).status == 200);
      CHECK(served.post("/finish_weight_update").status == 200);
      CHECK(served.prompt_logprobs(kPrompt) == expected.prompt_logprobs(kPrompt));
      std::vector<std::string> wanted;
      for (const std::size_t size : chunks) wanted.push_back("broadcast " + std::to_string(size));
      std::vector<std::string> received;
      for (const std::string& line : split(read_file(trace), '\n')) {
        if (line.starts_with("broadcast")) received.push_back(line);
      }
      CHECK(received == wanted);
      CHECK(read_file(trace).find("worker 0 > 00cef7853c\n") != std::string::npos);
    }
  }
}

TEST_CASE("an update waits until all bytes have come, and ends with an error when the trainer goes") {
  Served served(options_of("G3", 1));
  const Checkpoint checkpoint = read_checkpoint(VIME_TEST_DATA "/models/qwen3");
  std::future<http::Outcome> posted;
  {
    Trainer trainer(served, 1);
    REQUIRE(trainer.init().status == 200);
    served.post("/start_weight_update");
    posted = served.send("POST", "/update_weights", Json{{"update_info", update_lists(checkpoint, 0, 2)}}.dump());
    trainer.broadcast(bytes_of(checkpoint[0]));
    CHECK(posted.wait_for(std::chrono::milliseconds(200)) == std::future_status::timeout);
    CHECK(served.get("/health").status == 200);
  }
  CHECK(Served::reply(std::move(posted)).status == 500);
}

TEST_CASE("an update before init, and keys of another release, are refused") {
  Served served(options_of("G3", 1));
  served.post("/start_weight_update");
  const std::string lists = R"("names":["a"],"dtype_names":["float32"],"shapes":[[1]])";
  check_error(served.post("/update_weights", "{\"update_info\":{" + lists + "}}"), 500,
              "NCCL weight transfer not initialized. Call init_transfer_engine() first.");
  served.post("/start_weight_update");
  check_error(served.post("/update_weights", "{\"update_info\":{" + lists + ",\"packed\":true}}"), 500,
              "NCCLWeightTransferUpdateInfo.__init__() got an unexpected keyword argument 'packed'");
  check_error(served.post("/init_weight_transfer_engine", R"({"init_info":{"rank_offset":1,"world_size":2}})"), 500,
              "need nccl_unique_id_b64, or both master_address and master_port");
  Served middle(options_of("0.29.0", 1));
  check_error(middle.post("/init_weight_transfer_engine", R"({"init_info":{"master_address":"127.0.0.1"}})"), 500,
              "missing 3 required positional arguments: 'master_port', 'rank_offset', and 'world_size'");
  Served older(options_of("G2c", 1));
  check_error(older.post("/init_weight_transfer_engine",
                         R"({"init_info":{"master_address":"a","master_port":1,"rank_offset":1,"world_size":2,)"
                         R"("packed":true}})"),
              500, "unexpected keyword argument 'packed'");
  check_error(
      older.post("/init_weight_transfer_engine",
                 R"({"init_info":{"master_address":"127.0.0.1","master_port":1,"rank_offset":1,"world_size":1}})"),
      500, "invalid argument");
}

TEST_CASE("an id that is NCCL's is recognised and said to be of no use here, another pickle is refused") {
  Served served(options_of("G3", 1));
  {
    Trainer trainer(served, 1);
    trainer.serve_stores(pickled_unique_id("\x01\x02\x03"));
    check_error(trainer.posted(), 500, "would call ncclCommInitRank");
  }
  Trainer trainer(served, 1);
  trainer.serve_stores(whole_pickle(std::string("C\x02") + "ab"));
  check_error(trainer.posted(), 500, "expected ncclUniqueId instance instead of bytes");
}

TEST_CASE("the newest release takes the id itself instead of a store") {
  const Listener data;
  std::string id = "tcp:127.0.0.1:" + std::to_string(data.port());
  id.resize(128);
  const Json info = {{"nccl_unique_id_b64", base64(id)}, {"rank_offset", 1}, {"world_size", 2}};
  const std::string body = Json{{"init_info", info}}.dump();
  Served served(options_of("G3", 1));
  auto posted = served.send("POST", "/init_weight_transfer_engine", body);
  const UniqueFd link = data.accept();
  receive(link, 8 + sizeof(float));
  send(link, raw(0.0f).data(), sizeof(float));
  CHECK(Served::reply(std::move(posted)).status == 200);
  Served older(options_of("G2c", 1));
  check_error(older.post("/init_weight_transfer_engine", body), 500,
              "unexpected keyword argument 'nccl_unique_id_b64'");
}
