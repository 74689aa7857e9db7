#include "sweep/result_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "base/error.hpp"

using namespace vime;
using namespace vime::sweep;

namespace {

std::string refusal(const fs::path& name) {
  try {
    ResultFile file(name.string());
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.what();
  }
}

size_t entries(const fs::path& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("a result goes to a file; the old one stays until it is cleared") {
  TempDir folder;
  const fs::path path = folder.path() / "out.json";
  write_file_atomic(path, "old");
  const ResultFile file(path.string());
  CHECK(read_file(path) == "old");
  CHECK(entries(folder.path()) == 1);  // nothing is left of the look at the folder
  file.clear();
  CHECK_FALSE(fs::exists(path));
  file.clear();
  file.write({{"status", "pass"}});
  CHECK(parse_json(read_file(path)) == Json{{"status", "pass"}});
}

TEST_CASE("what writing would replace or could not reach is refused, naming the file") {
  TempDir folder;
  const fs::path fifo = folder.path() / "fifo", loop = folder.path() / "loop";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  fs::create_symlink(loop, loop);
  fs::create_symlink(fifo, folder.path() / "link");
  CHECK(refusal("") == "--json \"\": the name of the file is empty");
  CHECK(refusal(folder.path()) == "--json " + folder.path().string() + ": it is a folder; expected the name of a file");
  CHECK(refusal("/dev/null") == "--json /dev/null: it is a device; expected the name of a file");
  CHECK(refusal(fifo) == "--json " + fifo.string() + ": it is a FIFO; expected the name of a file");
  CHECK(refusal(folder.path() / "link").find("it is a FIFO") != std::string::npos);
  CHECK(refusal(loop).find("--json " + loop.string() + ": ") == 0);
  CHECK(refusal(folder.path() / "no" / "out.json").find("there is no folder") != std::string::npos);
  CHECK(refusal((folder.path() / "out").string() + "/") != "");
  // Not even root makes files there.
  CHECK(refusal("/proc/out.json").find("--json /proc/out.json: the folder /proc cannot be written") == 0);
}

TEST_CASE("a symbolic link stays, and what it points to is written, whether it is there or not") {
  TempDir folder;
  const fs::path link = folder.path() / "link.json", target = folder.path() / "far" / "out.json";
  fs::create_directory(target.parent_path());
  fs::create_symlink("far/out.json", link);
  for (const char* what : {"not there yet", "there"}) {
    CAPTURE(what);
    const ResultFile file(link.string());
    CHECK(file.path() == target);
    file.clear();
    file.write({{"status", what}});
    CHECK(fs::is_symlink(link));
    CHECK(parse_json(read_file(target)) == Json{{"status", what}});
  }
}
