#include "data/line_reader.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"

namespace vime::data {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct PackedKind {
  std::string_view magic;
  const char* name;
};
constexpr PackedKind kUnreadable[] = {{"PAR1", "Parquet"},
                                      {"\x28\xB5\x2F\xFD", "Zstandard"},
                                      {"\xFD\x37\x7A\x58\x5A", "xz"},
                                      {"BZh", "bzip2"},
                                      {"PK\x03\x04", "zip"}};

// The bytes of a file as they lie on the disk.
class RawFile {
 public:
  explicit RawFile(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!fd_) throw_errno(ErrorKind::refused, path);
  }

  // Fills `bytes` as far as the file goes; 0 at its end.
  size_t read(char* bytes, size_t size) {
    size_t count = 0;
    while (count < size) {
      const ssize_t got = ::read(fd_.get(), bytes + count, size - count);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw_errno(ErrorKind::refused, path_);
      if (got == 0) break;
      count += static_cast<size_t>(got);
    }
    return count;
  }

  [[noreturn]] void refuse(const std::string& why) const { throw Error(ErrorKind::refused, path_ + ": " + why); }

 private:
  std::string path_;
  UniqueFd fd_;
};

// What gzip members, one after the other, unpack to.
class GzipStream {
 public:
  explicit GzipStream(RawFile& file) : file_(file), packed_(kChunkBytes) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw Error(ErrorKind::exhausted, "zlib: no memory");
  }
  ~GzipStream() { inflateEnd(&stream_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Bytes that were read already, to tell the kind of the file.
  void begin_with(std::string_view bytes) {
    std::memcpy(packed_.data(), bytes.data(), bytes.size());
    give(bytes.size());
  }

  size_t read(char* bytes, size_t size) {
    stream_.next_out = reinterpret_cast<Bytef*>(bytes);
    stream_.avail_out = static_cast<uInt>(size);
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) give(file_.read(packed_.data(), packed_.size()));
      if (stream_.avail_in == 0) {
        if (inside_member_) file_.refuse("the gzip data ends early; the file was cut off");
        break;
      }
      if (!inside_member_) begin_member();
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) throw Error(ErrorKind::exhausted, "zlib: no memory");
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        file_.refuse("the gzip data is damaged" + (stream_.msg ? " (" + std::string(stream_.msg) + ")" : ""));
      }
      if (result == Z_STREAM_END) inside_member_ = false;
    }
    return size - stream_.avail_out;
  }

 private:
  void give(size_t count) {
    stream_.next_in = reinterpret_cast<Bytef*>(packed_.data());
    stream_.avail_in = static_cast<uInt>(count);
  }

  void begin_member() {
    if (*stream_.next_in != 0x1F) file_.refuse("something that is no gzip data follows the end of the gzip data");
    inflateReset(&stream_);
    inside_member_ = true;
  }

  RawFile& file_;
  std::vector<char> packed_;
  z_stream stream_{};
  bool inside_member_ = false;
};

}  // namespace

struct LineReader::State {
  State(const std::string& path, int64_t max_line_bytes)
      : file(path), max_bytes(static_cast<size_t>(max_line_bytes)), chunk(kChunkBytes) {
    end = file.read(chunk.data(), chunk.size());
    const std::string_view head(chunk.data(), end);
    for (const PackedKind& kind : kUnreadable) {
      if (head.substr(0, kind.magic.size()) != kind.magic) continue;
      file.refuse(std::string("is a ") + kind.name + " file; expected JSON lines, plain or gzip");
    }
    if (head.substr(0, 2) == "\x1F\x8B") {
      gzip.emplace(file);
      gzip->begin_with(head);
      end = gzip->read(chunk.data(), chunk.size());
    }
    if (std::string_view(chunk.data(), end).substr(0, kByteOrderMark.size()) == kByteOrderMark) {
      at = kByteOrderMark.size();
    }
  }

  bool refill() {
    at = 0;
    end = gzip ? gzip->read(chunk.data(), chunk.size()) : file.read(chunk.data(), chunk.size());
    return end > 0;
  }

  // Adds to a line that goes on from chunk to chunk; one byte over the limit shows that it is too long.
  void keep(std::string_view part) {
    kept.append(part.substr(0, max_bytes + 2 - std::min(kept.size(), max_bytes + 2)));
  }

  RawFile file;
  std::optional<GzipStream> gzip;
  size_t max_bytes;
  std::vector<char> chunk;
  size_t at = 0, end = 0;  // what of the chunk was not handed out yet
  std::string kept;        // the beginning of a line that does not end in its chunk
  int64_t number = 0;
  bool too_long = false;
};

LineReader::LineReader(const std::string& path, int64_t max_line_bytes)
    : state_(std::make_unique<State>(path, max_line_bytes)) {}
LineReader::~LineReader() = default;

bool LineReader::next(std::string_view& line) {
  State& s = *state_;
  s.kept.clear();
  bool split = false, ended = false;
  while (!ended) {
    if (s.at == s.end && !s.refill()) {
      if (!split) return false;
      line = s.kept;  // the last line has no end
      break;
    }
    const char* start = s.chunk.data() + s.at;
    const auto* newline = static_cast<const char*>(std::memchr(start, '\n', s.end - s.at));
    const std::string_view part(start, newline ? static_cast<size_t>(newline - start) : s.end - s.at);
    ended = newline != nullptr;
    s.at += part.size() + (ended ? 1 : 0);
    if (ended && !split) {
      line = part;
    } else {
      s.keep(part);
      line = s.kept;
      split = true;
    }
  }
  ++s.number;
  if (ended && !line.empty() && line.back() == '\r') line.remove_suffix(1);
  s.too_long = line.size() > s.max_bytes;
  line = line.substr(0, s.max_bytes);
  return true;
}

int64_t LineReader::number() const {
  return state_->number;
}

bool LineReader::is_too_long() const {
  return state_->too_long;
}

}  // namespace vime::data
