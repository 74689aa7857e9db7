#include "weights/shared_arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/strings.hpp"

namespace vime::weights {
namespace {

// The first page: 8 bytes of magic, then the nonce's 32 digits. The data begins on the next page.
constexpr uint64_t kHeaderBytes = 4096;
constexpr char kMagic[9] = "vimeweig";

}  // namespace

SharedArena::SharedArena(uint64_t bytes) : bytes_(bytes), nonce_(random_token()) {
  const std::string what = "shared memory of " + format_bytes(bytes);
  fd_ = UniqueFd(::memfd_create("vime-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_) throw_errno(ErrorKind::exhausted, what);
  if (::ftruncate(fd_.get(), static_cast<off_t>(kHeaderBytes + bytes)) != 0) throw_errno(ErrorKind::exhausted, what);
  // A reader of a file that shrinks gets SIGBUS; the seal makes that impossible.
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    throw_errno(ErrorKind::exhausted, what + ": seal");
  void* map = ::mmap(nullptr, kHeaderBytes + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (map == MAP_FAILED) throw_errno(ErrorKind::exhausted, what + ": map");
  map_ = static_cast<std::byte*>(map);
  data_ = map_ + kHeaderBytes;
  std::memcpy(map_, kMagic, 8);
  std::memcpy(map_ + 8, nonce_.data(), nonce_.size());
}

SharedArena::~SharedArena() {
  ::munmap(map_, kHeaderBytes + bytes_);
}

std::string SharedArena::handle() const {
  return "memfd:" + std::to_string(::getpid()) + ":" + std::to_string(fd_.get()) + ":" + nonce_;
}

SharedMapping::SharedMapping(const std::string& handle) {
  const std::vector<std::string> parts = split(handle, ':');
  if (parts.size() != 4 || parts[0] != "memfd") {
    throw Error(ErrorKind::refused, "weight handle \"" + handle + "\": expected memfd:<pid>:<fd>:<nonce>");
  }
  const std::string what = "weight handle " + handle;
  const std::string path = "/proc/" + parts[1] + "/fd/" + parts[2];
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw_errno(ErrorKind::process_failed, what + ": open " + path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw_errno(ErrorKind::process_failed, what);
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || file_bytes < kHeaderBytes) {
    throw Error(ErrorKind::process_failed, what + ": " + path + " is not an arena of vime");
  }
  void* map = ::mmap(nullptr, file_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) throw_errno(ErrorKind::exhausted, what + ": map");
  map_ = static_cast<std::byte*>(map);
  data_ = map_ + kHeaderBytes;
  bytes_ = file_bytes - kHeaderBytes;
  if (std::memcmp(map_, kMagic, 8) != 0 || parts[3].size() != 32 || std::memcmp(map_ + 8, parts[3].data(), 32) != 0) {
    ::munmap(map_, file_bytes);
    throw Error(ErrorKind::process_failed, what + ": the memory belongs to another arena; its owner has gone");
  }
}

SharedMapping::~SharedMapping() {
  ::munmap(map_, kHeaderBytes + bytes_);
}

}  // namespace vime::weights
