#include "sweep/run_folder.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"

using namespace vime;
using namespace vime::sweep;

TEST_CASE("sweeps that want the same folder at the same time each get one of their own") {
  TempDir folder;
  const fs::path wanted = folder.path() / "runs" / "check-parallel-20261129-140211";
  std::vector<std::string> taken(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& path : taken) threads.emplace_back([&] { path = RunFolder(wanted, true).path().string(); });
  }
  std::set<std::string> expected = {wanted.string()};
  for (int i = 2; i <= 8; ++i) expected.insert(wanted.string() + "-" + std::to_string(i));
  CHECK(std::set<std::string>(taken.begin(), taken.end()) == expected);
  for (const std::string& path : taken) CHECK(fs::is_directory(path));
}

TEST_CASE("what has the name of a folder is left alone, even when it is empty or a file") {
  TempDir folder;
  fs::create_directory(folder.path() / "run");
  write_file_atomic(folder.path() / "run-2", "mine");
  CHECK(RunFolder(folder.path() / "run", true).path() == folder.path() / "run-3");
}

TEST_CASE("the folder around a sweep's own goes with it when it was made for it and is empty") {
  TempDir folder;
  const fs::path runs = folder.path() / "runs";
  RunFolder(runs / "one", true).remove();
  CHECK_FALSE(fs::exists(runs));
  const RunFolder first(runs / "one", true), second(runs / "two", true);
  first.remove();
  CHECK(fs::exists(second.path()));
  second.remove();
  CHECK(fs::exists(runs));  // the first sweep made it
  RunFolder(runs / "three", true).remove();
  CHECK(fs::exists(runs));
}

TEST_CASE("a folder that the user names is taken when it is empty, and refused otherwise") {
  TempDir folder;
  CHECK(RunFolder(folder.path() / "a" / "b", false).path() == folder.path() / "a" / "b");
  CHECK(RunFolder(folder.path() / "a" / "b", false).path() == folder.path() / "a" / "b");
  CHECK_THROWS_AS(RunFolder(folder.path() / "a", false), Error);
  write_file_atomic(folder.path() / "file", "");
  CHECK_THROWS_AS(RunFolder(folder.path() / "file", false), Error);
  CHECK_THROWS_AS(RunFolder(folder.path() / "file" / "run", true), Error);
}
