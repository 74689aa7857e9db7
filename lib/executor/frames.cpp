#include "executor/frames.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"

namespace vime::executor {
namespace {

struct Header {
  uint32_t kind = 0;
  uint32_t zero = 0;
  uint64_t bytes = 0;
};

// A sample's fixed part; its banned ids follow all samples.
struct WireSample {
  int32_t row = 0;
  int32_t forced = 0;
  float temperature = 0;
  float top_p = 0;
  int32_t top_k = 0;
  float min_p = 0;
  uint32_t banned = 0;
  uint32_t zero = 0;
  uint64_t seed = 0;
  int64_t step = 0;
};

template <typename T>
void put(std::string& out, const T* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  template <typename T>
  void take(T* values, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    VIME_CHECK(at_ + count * sizeof(T) <= bytes_.size(), "a message between engine and worker is too short");
    if (count > 0) std::memcpy(values, bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

bool read_all(int fd, void* into, std::size_t bytes) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace

ReadStatus read_frame(int fd, Frame& frame) {
  Header header;
  if (!read_all(fd, &header, sizeof header)) return ReadStatus::closed;
  frame.kind = static_cast<FrameKind>(header.kind);
  frame.payload.resize(header.bytes);
  return read_all(fd, frame.payload.data(), header.bytes) ? ReadStatus::whole : ReadStatus::closed;
}

bool write_frame(int fd, const Frame& frame) {
  const Header header{static_cast<uint32_t>(frame.kind), 0, frame.payload.size()};
  return write_all(fd, &header, sizeof header) && write_all(fd, frame.payload.data(), frame.payload.size());
}

std::string pack_batch(const engine::Batch& batch) {
  const uint64_t counts[2] = {batch.rows.size(), batch.samples.size()};
  std::string out;
  put(out, counts, 2);
  put(out, batch.rows.data(), batch.rows.size());
  for (const engine::SampleSpec& spec : batch.samples) {
    const WireSample wire{spec.row,
                          spec.forced,
                          spec.temperature,
                          spec.top_p,
                          spec.top_k,
                          spec.min_p,
                          static_cast<uint32_t>(spec.banned.size()),
                          0,
                          spec.seed,
                          spec.step};
    put(out, &wire, 1);
  }
  for (const engine::SampleSpec& spec : batch.samples) put(out, spec.banned.data(), spec.banned.size());
  return out;
}

engine::Batch unpack_batch(const std::string& payload) {
  Unpacker in(payload);
  uint64_t counts[2] = {};
  in.take(counts, 2);
  engine::Batch batch;
  batch.rows.resize(counts[0]);
  in.take(batch.rows.data(), counts[0]);
  for (uint64_t i = 0; i < counts[1]; ++i) {
    WireSample wire;
    in.take(&wire, 1);
    batch.samples.push_back({wire.row, wire.forced, wire.temperature, wire.top_p, wire.top_k, wire.min_p, wire.seed,
                             wire.step, std::vector<int32_t>(wire.banned)});
  }
  for (engine::SampleSpec& spec : batch.samples) in.take(spec.banned.data(), spec.banned.size());
  return batch;
}

std::string pack_sampled(const std::vector<engine::Sampled>& sampled) {
  std::string out;
  put(out, sampled.data(), sampled.size());
  return out;
}

std::vector<engine::Sampled> unpack_sampled(const std::string& payload) {
  std::vector<engine::Sampled> sampled(payload.size() / sizeof(engine::Sampled));
  Unpacker(payload).take(sampled.data(), sampled.size());
  return sampled;
}

FrameReader::Status FrameReader::read_some(int fd) {
  char piece[1 << 16];
  while (true) {
    const ssize_t got = ::recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) return Status::closed;
    bytes_.append(piece, static_cast<std::size_t>(got));
  }
  Header header;
  if (bytes_.size() < sizeof header) return Status::partial;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (bytes_.size() < sizeof header + header.bytes) return Status::partial;
  VIME_CHECK(bytes_.size() == sizeof header + header.bytes, "a worker sent more than one answer");
  frame_ = {static_cast<FrameKind>(header.kind), bytes_.substr(sizeof header)};
  bytes_.clear();
  return Status::whole;
}

}  // namespace vime::executor
