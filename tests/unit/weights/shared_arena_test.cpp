#include "weights/shared_arena.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "base/error.hpp"

using namespace vime;
using namespace vime::weights;

TEST_CASE("another process reads what the owner wrote, and what it writes later") {
  SharedArena arena(100000);
  std::memset(arena.data(), 7, arena.bytes());
  int ready[2], go[2];
  REQUIRE(::pipe(ready) == 0);
  REQUIRE(::pipe(go) == 0);
  const std::string handle = arena.handle();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const SharedMapping mapping(handle);
      const bool before = mapping.bytes() == 100000 && mapping.data()[99999] == std::byte{7};
      char byte = 'r';
      if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) ::_exit(2);
      ::_exit(before && mapping.data()[0] == std::byte{8} ? 0 : 1);
    } catch (...) {
      ::_exit(3);
    }
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  arena.data()[0] = std::byte{8};
  REQUIRE(::write(go[1], &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
}

TEST_CASE("a mapping stays valid after its owner has gone") {
  auto arena = std::make_unique<SharedArena>(64);
  arena->data()[63] = std::byte{5};
  const SharedMapping mapping(arena->handle());
  arena.reset();
  CHECK(mapping.data()[63] == std::byte{5});
}

TEST_CASE("a handle of another arena, of no arena or of no process is refused") {
  const SharedArena arena(64);
  std::string recycled = arena.handle();
  recycled.back() = recycled.back() == '0' ? '1' : '0';  // the same descriptor, another arena's nonce
  CHECK_THROWS_WITH_AS(SharedMapping{recycled}, doctest::Contains("another arena"), Error);
  CHECK_THROWS_WITH_AS(SharedMapping{"memfd:1:2"}, doctest::Contains("expected memfd:<pid>:<fd>:<nonce>"), Error);
  CHECK_THROWS_WITH_AS(SharedMapping{"memfd:999999999:3:" + std::string(32, 'a')}, doctest::Contains("No such file"),
                       Error);
  const int fd = ::memfd_create("other", MFD_CLOEXEC);
  CHECK_THROWS_WITH_AS(
      SharedMapping("memfd:" + std::to_string(::getpid()) + ":" + std::to_string(fd) + ":" + std::string(32, 'a')),
      doctest::Contains("not an arena"), Error);
  ::close(fd);
}
