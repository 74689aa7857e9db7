#include "loop/weight_folders.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/files.hpp"

using namespace vime;
using namespace vime::loop;

namespace {

void write_version(const WeightFolders& folders, int64_t version) {
  write_file_atomic(folders.begin(version, 10) / "model.safetensors", "v" + std::to_string(version));
}

}  // namespace

TEST_CASE("a folder appears under its name when it is whole, and the two newest stay") {
  const TempDir dir;
  const fs::path root = dir.path() / "weights";
  {
    const WeightFolders folders(root);
    write_version(folders, 1);
    CHECK_FALSE(fs::exists(root / "version_000001"));
    CHECK(folders.publish(1) == root / "version_000001");
    CHECK(read_file(root / "version_000001" / "model.safetensors") == "v1");
    for (const int64_t version : {2, 3}) {
      write_version(folders, version);
      folders.publish(version);
    }
    CHECK_FALSE(fs::exists(root / "version_000001"));
    CHECK(fs::exists(root / "version_000002"));
    CHECK(fs::exists(root / "version_000003"));
    write_version(folders, 3);  // the same number again
    folders.publish(3);
    folders.begin(4, 10);  // never finished
  }
  CHECK_FALSE(fs::exists(root));
}

TEST_CASE("a root that an attempt left is emptied, and what lies beside it is nobody's business") {
  const TempDir dir;
  make_directories(dir.path() / "vime-1" / "version_000007");
  make_directories(dir.path() / "version_0");
  {
    const WeightFolders folders(dir.path() / "vime-1");
    CHECK_FALSE(fs::exists(dir.path() / "vime-1" / "version_000007"));
  }
  CHECK_FALSE(fs::exists(dir.path() / "vime-1"));
  CHECK(fs::exists(dir.path() / "version_0"));
  write_file_atomic(dir.path() / "file", "");
  try {
    WeightFolders(dir.path() / "file" / "vime-1");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.message().find("weight_sync.disk_dir") != std::string::npos);
  }
}

TEST_CASE("a disk without room is said before anything is written") {
  const TempDir dir;
  const WeightFolders folders(dir.path() / "weights");
  try {
    folders.begin(1, uint64_t{1} << 60);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::exhausted);
    CHECK(error.message().find("weights of version 1 need ") != std::string::npos);
    CHECK(error.hint().find("weight_sync.disk_dir") != std::string::npos);
  }
}
