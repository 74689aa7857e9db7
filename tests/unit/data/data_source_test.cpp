#include "data/data_source.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "base/error.hpp"

using namespace vime;
using namespace vime::data;

namespace {

std::vector<Prompt> numbered(int64_t count) {
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < count; ++i) {
    Prompt& prompt = prompts.emplace_back();
    prompt.id = i;
    prompt.text = "p" + std::to_string(i);
  }
  return prompts;
}

std::vector<int64_t> ids(const std::vector<Prompt>& prompts) {
  std::vector<int64_t> result;
  for (const Prompt& prompt : prompts) result.push_back(prompt.id);
  return result;
}

}  // namespace

TEST_CASE("every epoch holds every prompt exactly once, whatever the batch size") {
  for (int64_t batch : {1, 3, 7, 10, 23}) {
    CAPTURE(batch);
    DataSource source(numbered(10), 7, true);
    std::vector<int64_t> stream;
    while (stream.size() < 60) {
      for (int64_t id : ids(source.next(batch))) stream.push_back(id);
    }
    for (size_t epoch = 0; epoch < 6; ++epoch) {
      const auto first = stream.begin() + static_cast<std::ptrdiff_t>(epoch * 10);
      CHECK(std::set<int64_t>(first, first + 10).size() == 10);
    }
  }
}

TEST_CASE("the order depends on seed and epoch and on nothing else") {
  DataSource a(numbered(50), 7, true);
  DataSource b(numbered(50), 7, true);
  DataSource other(numbered(50), 8, true);
  const auto first = ids(a.next(50));
  const auto second = ids(a.next(50));
  CHECK(first != second);
  CHECK(first != ids(other.next(50)));
  std::vector<int64_t> pieces;
  for (int i = 0; i < 20; ++i) {
    for (int64_t id : ids(b.next(5))) pieces.push_back(id);
  }
  std::vector<int64_t> whole = first;
  whole.insert(whole.end(), second.begin(), second.end());
  CHECK(pieces == whole);
}

TEST_CASE("without shuffling every epoch has the data set's own order") {
  DataSource source(numbered(4), 7, false);
  CHECK(ids(source.next(10)) == std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1});
  CHECK(source.position() == DataPosition{2, 2});
}

TEST_CASE("the epoch rolls over when its last prompt was handed out") {
  DataSource source(numbered(4), 7, true);
  source.next(3);
  CHECK(source.position() == DataPosition{0, 3});
  source.next(1);
  CHECK(source.position() == DataPosition{1, 0});
  source.next(0);
  CHECK(source.position() == DataPosition{1, 0});
  source.next(9);
  CHECK(source.position() == DataPosition{3, 1});
}

TEST_CASE("a source put to a saved position goes on as the first one did") {
  for (int64_t stop = 0; stop <= 25; ++stop) {
    DataSource unbroken(numbered(10), 3, true);
    unbroken.next(stop);
    DataSource resumed(numbered(10), 3, true);
    resumed.seek(unbroken.position());
    CHECK(resumed.position() == unbroken.position());
    CHECK(ids(resumed.next(17)) == ids(unbroken.next(17)));
  }
}

TEST_CASE("a position outside the data set and an empty data set are refused") {
  DataSource source(numbered(4), 7, true);
  CHECK_THROWS_AS(source.seek({0, 4}), Error);
  CHECK_THROWS_AS(source.seek({-1, 0}), Error);
  CHECK_THROWS_AS(source.seek({0, -1}), Error);
  CHECK_THROWS_AS(DataSource({}, 1, true), Error);
}
