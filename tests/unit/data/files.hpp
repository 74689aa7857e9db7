// Files for the tests of this room, and what a refusal says.
#pragma once

#include <doctest/doctest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"

namespace vime::data {

// A folder whose files have short names in errors: place("a.jsonl") is the path.
class Folder {
 public:
  std::string place(const std::string& name) const { return (dir_.path() / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    write_file_atomic(place(name), content);
    return place(name);
  }

 private:
  TempDir dir_;
};

// One gzip member.
inline std::string packed(const std::string& content) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  std::string in = content;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Message and hint of the refusal; "" when nothing was thrown.
template <typename Function>
std::string refusal(const Function& function) {
  try {
    function();
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.what();
  }
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace vime::data
