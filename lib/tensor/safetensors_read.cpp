#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tensor/safetensors.hpp"

namespace vime::tensor {
namespace {

constexpr uint64_t kLengthBytes = 8;
// The format's own limit; a longer header is a file of another kind.
constexpr uint64_t kLongestHeader = 100'000'000;

class Mapping {
 public:
  Mapping(const fs::path& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) throw_errno(ErrorKind::refused, "open " + path.string());
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw_errno(ErrorKind::refused, "stat " + path.string());
    if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::refused, path.string() + ": not a regular file");
    size_ = static_cast<uint64_t>(status.st_size);
    if (size_ == 0) return;
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (at == MAP_FAILED) throw_errno(ErrorKind::refused, "map " + path.string());
    data_ = static_cast<const std::byte*>(at);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  }

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

Json parse_header(const char* text, uint64_t length) {
  std::set<std::string> names;
  std::string twice;
  // nlohmann keeps one of two equal keys without a word; the other tensor would vanish.
  const auto note_names = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, text + length, note_names);
  } catch (const Json::exception&) {
    throw Error(ErrorKind::refused, "the header is not JSON");
  }
  if (!twice.empty()) throw Error(ErrorKind::refused, "two tensors have the name \"" + twice + "\"");
  if (!header.is_object()) throw Error(ErrorKind::refused, "the header is not a JSON object");
  return header;
}

uint64_t unsigned_item(const Json& value, const char* what) {
  if (!value.is_number_unsigned()) {
    throw Error(ErrorKind::refused, std::string(what) + ": expected an integer >= 0, found " + value.dump());
  }
  return value.get<uint64_t>();
}

const Json& required(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) throw Error(ErrorKind::refused, "\"" + std::string(key) + "\" is missing");
  return *found;
}

TensorInfo parse_info(const std::string& name, const Json& entry) {
  if (!entry.is_object()) throw Error(ErrorKind::refused, "expected an object, found " + entry.dump());
  TensorInfo info;
  info.name = name;
  const Json& dtype = required(entry, "dtype");
  if (!dtype.is_string()) throw Error(ErrorKind::refused, "dtype: expected a string, found " + dtype.dump());
  info.dtype = parse_safetensors_name(dtype.get<std::string>());
  const Json& shape = required(entry, "shape");
  if (!shape.is_array()) throw Error(ErrorKind::refused, "shape: expected a list, found " + shape.dump());
  for (const Json& size : shape) {
    const uint64_t value = unsigned_item(size, "shape");
    if (value > static_cast<uint64_t>(INT64_MAX))
      throw Error(ErrorKind::refused, "shape: " + size.dump() + " is too large");
    info.shape.push_back(static_cast<int64_t>(value));
  }
  return info;
}

Range parse_range(const Json& entry, const TensorInfo& info, uint64_t data_bytes) {
  const Json& offsets = required(entry, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) {
    throw Error(ErrorKind::refused, "data_offsets: expected [begin, end], found " + offsets.dump());
  }
  Range range{unsigned_item(offsets[0], "data_offsets"), unsigned_item(offsets[1], "data_offsets"), info.name};
  const auto count = static_cast<uint64_t>(element_count(info.shape));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, static_cast<uint64_t>(element_bytes(info.dtype)), &bytes)) {
    throw Error(ErrorKind::refused, "shape " + shape_text(info.shape) + " is too large");
  }
  if (range.end < range.begin || range.end - range.begin != bytes) {
    throw Error(ErrorKind::refused, "data_offsets " + offsets.dump() + " do not fit " + safetensors_name(info.dtype) +
                                        " " + shape_text(info.shape) + ", which takes " + std::to_string(bytes) +
                                        " bytes");
  }
  if (range.end > data_bytes) {
    throw Error(ErrorKind::refused, "the file is truncated: the tensor ends at byte " + std::to_string(range.end) +
                                        " of the data, of which there are " + std::to_string(data_bytes));
  }
  return range;
}

// Gaps between tensors are legal, bytes that two tensors share or that follow the last one are not.
void check_ranges(std::vector<Range> ranges, uint64_t data_bytes) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t end = 0;
  const Range* before = nullptr;
  for (const Range& range : ranges) {
    if (range.begin == range.end) continue;
    if (before != nullptr && range.begin < end) {
      throw Error(ErrorKind::refused, "tensors \"" + before->name + "\" and \"" + range.name + "\" overlap");
    }
    end = range.end;
    before = &range;
  }
  if (end < data_bytes) {
    throw Error(ErrorKind::refused, std::to_string(data_bytes - end) + " bytes after the last tensor belong to none");
  }
}

}  // namespace

struct SafetensorsFile::State {
  explicit State(const fs::path& file) : path(file), mapping(file) {}

  void parse();
  void parse_metadata(const Json& values);

  fs::path path;
  Mapping mapping;
  std::vector<TensorView> tensors;
  std::unordered_map<std::string, std::size_t> by_name;
  std::map<std::string, std::string> metadata;
};

void SafetensorsFile::State::parse_metadata(const Json& values) {
  if (!values.is_object()) throw Error(ErrorKind::refused, "__metadata__: expected an object, found " + values.dump());
  for (const auto& [key, value] : values.items()) {
    if (!value.is_string()) {
      throw Error(ErrorKind::refused, "__metadata__: \"" + key + "\": expected a string, found " + value.dump());
    }
    metadata[key] = value.get<std::string>();
  }
}

void SafetensorsFile::State::parse() {
  if (mapping.size() < kLengthBytes) {
    throw Error(ErrorKind::refused, "the file is truncated: it has " + std::to_string(mapping.size()) +
                                        " bytes, the header's length alone takes 8");
  }
  uint64_t header_bytes = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<uint64_t>(mapping.data()[i]) << (8 * i);
  if (header_bytes > kLongestHeader) {
    throw Error(ErrorKind::refused, "the header claims " + std::to_string(header_bytes) + " bytes, more than the " +
                                        std::to_string(kLongestHeader) + " that the format allows");
  }
  if (header_bytes > mapping.size() - kLengthBytes) {
    throw Error(ErrorKind::refused, "the file is truncated: the header claims " + std::to_string(header_bytes) +
                                        " bytes, " + std::to_string(mapping.size() - kLengthBytes) + " follow");
  }
  const Json header = parse_header(reinterpret_cast<const char*>(mapping.data()) + kLengthBytes, header_bytes);
  const std::byte* data = mapping.data() + kLengthBytes + header_bytes;
  const uint64_t data_bytes = mapping.size() - kLengthBytes - header_bytes;
  std::vector<Range> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      parse_metadata(entry);
      continue;
    }
    try {
      TensorInfo info = parse_info(name, entry);
      ranges.push_back(parse_range(entry, info, data_bytes));
      by_name[name] = tensors.size();
      tensors.push_back({std::move(info), data + ranges.back().begin});
    } catch (const Error& e) {
      throw e.within("tensor \"" + name + "\"");
    }
  }
  check_ranges(std::move(ranges), data_bytes);
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : state_(std::make_unique<State>(path)) {
  try {
    state_->parse();
  } catch (const Error& e) {
    throw e.within(path.string());
  }
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<TensorView>& SafetensorsFile::tensors() const {
  return state_->tensors;
}
bool SafetensorsFile::contains(const std::string& name) const {
  return state_->by_name.contains(name);
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->metadata;
}
const fs::path& SafetensorsFile::path() const {
  return state_->path;
}

const TensorView& SafetensorsFile::find(const std::string& name) const {
  const auto found = state_->by_name.find(name);
  if (found == state_->by_name.end()) {
    throw Error(ErrorKind::refused, state_->path.string() + ": there is no tensor \"" + name + "\"");
  }
  return state_->tensors[found->second];
}

}  // namespace vime::tensor
