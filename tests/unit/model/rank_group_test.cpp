#include "model/rank_group.hpp"

#include <torch/utils.h>
#include <atomic>
#include <future>

#include "base/error.hpp"
#include "ranks.hpp"
#include "torch_doctest.hpp"

using namespace vime;
using namespace vime::model;

namespace {

void require(bool condition, const std::string& what) {
  // doctest's assertions are for the thread of the test case.
  if (!condition) throw Error(ErrorKind::check_failed, what);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

torch::Tensor values_of(int rank, int64_t count) {
  torch::manual_seed(0);
  return torch::randn({4, count}, torch::kFloat32)[rank].clone();
}

}  // namespace

TEST_CASE("all-reduce is the sum in rank order, the same bits on every rank, for small and large tensors") {
  for (const int64_t count : {1, 7, 16'384, 1'000'003}) {
    torch::Tensor expected = values_of(0, count);
    std::vector<torch::Tensor> mine;
    for (int rank = 0; rank < 4; ++rank) mine.push_back(values_of(rank, count));
    for (int rank = 1; rank < 4; ++rank) expected = expected + mine[static_cast<std::size_t>(rank)];
    run_ranks(4, [&](const std::shared_ptr<RankGroup>& group) {
      torch::Tensor value = mine[static_cast<std::size_t>(group->rank())];
      group->all_reduce_sum(value);
      require(value.equal(expected), "wrong sum of " + std::to_string(count));
    });
  }
}

TEST_CASE("all-reduce writes into the tensor it was given, strided ones too") {
  run_ranks(2, [&](const std::shared_ptr<RankGroup>& group) {
    torch::Tensor whole = torch::zeros({3, 4});
    torch::Tensor column = whole.select(1, 1);
    column.fill_(group->rank() + 1.0);
    group->all_reduce_sum(column);
    require(whole.sum().item<float>() == 9.0f && whole[2][1].item<float>() == 3.0f, "not in place");
  });
}

TEST_CASE("gather, broadcast and strings arrive in rank order") {
  run_ranks(3, [&](const std::shared_ptr<RankGroup>& group) {
    const int rank = group->rank();
    const auto parts = group->all_gather(torch::full({2, 2}, rank, torch::kInt64));
    for (int r = 0; r < 3; ++r)
      require(parts[static_cast<std::size_t>(r)].equal(torch::full({2, 2}, r, torch::kInt64)), "all_gather");

    torch::Tensor value = torch::full({5}, rank, torch::kFloat64);
    group->broadcast(value, 1);
    require(value.equal(torch::ones({5}, torch::kFloat64)), "broadcast");

    const std::string mine(static_cast<std::size_t>(rank) * 100'000, static_cast<char>('a' + rank));
    const auto texts = group->all_gather_strings(mine);
    require(texts.size() == 3 && texts[0].empty() && texts[2] == std::string(200'000, 'c'), "all_gather_strings");
    const auto gathered = group->gather_strings("r" + std::to_string(rank), 2);
    require(rank == 2 ? gathered == std::vector<std::string>{"r0", "r1", "r2"} : gathered.empty(), "gather_strings");
    require(group->broadcast_string(rank == 0 ? "hello" : "", 0) == "hello", "broadcast_string");
  });
}

TEST_CASE("nobody passes a barrier before all have reached it") {
  std::atomic<int> arrived{0};
  run_ranks(4, [&](const std::shared_ptr<RankGroup>& group) {
    ++arrived;
    group->barrier();
    require(arrived == 4, "passed early");
  });
}

TEST_CASE("a group of one needs no connection") {
  const auto group = RankGroup::alone("solo");
  torch::Tensor value = torch::ones({3});
  group->all_reduce_sum(value);
  group->broadcast(value, 0);
  group->barrier();
  CHECK(value.equal(torch::ones({3})));
  CHECK(group->all_gather(value).size() == 1);
  CHECK(group->all_gather_strings("x") == std::vector<std::string>{"x"});
  CHECK(group->gather_strings("x", 0) == std::vector<std::string>{"x"});
  CHECK(group->broadcast_string("x", 0) == "x");
}

TEST_CASE("subgroups hold the ranks that were named and work beside each other") {
  run_ranks(4, [&](const std::shared_ptr<RankGroup>& world) {
    const int rank = world->rank();
    const auto low = world->subgroup("slot 0", {0, 1});
    const auto high = world->subgroup("slot 1", {3, 2});
    const auto single = world->subgroup("slot 2", {2});
    require((low != nullptr) == (rank < 2), "slot 0 has the wrong members");
    require((high != nullptr) == (rank >= 2), "slot 1 has the wrong members");
    require((single != nullptr) == (rank == 2), "slot 2 has the wrong members");
    const auto& mine = rank < 2 ? low : high;
    torch::Tensor value = torch::full({1}, static_cast<float>(rank));
    mine->all_reduce_sum(value);
    require(value.item<float>() == (rank < 2 ? 1.0f : 5.0f), "wrong sum");
    if (high) require(high->rank() == (rank == 3 ? 0 : 1), "wrong order");
    world->barrier();
  });
}

TEST_CASE("ranks that call different operations or bring different shapes both learn of it") {
  const auto operations = errors_of_ranks(2, [](const std::shared_ptr<RankGroup>& group) {
    torch::Tensor value = torch::ones({4});
    group->rank() == 0 ? group->barrier() : group->all_reduce_sum(value);
  });
  const std::string all = text_of(operations[0]) + text_of(operations[1]);
  CHECK(operations[0] != nullptr);
  CHECK(operations[1] != nullptr);
  CHECK(has(all, "different operations"));
  const auto shapes = errors_of_ranks(
      2, [](const std::shared_ptr<RankGroup>& group) { group->all_gather(torch::ones({4 + group->rank()})); });
  CHECK(shapes[0] != nullptr);
  CHECK(shapes[1] != nullptr);
  CHECK(has(text_of(shapes[0]) + text_of(shapes[1]), "different shapes"));
}

TEST_CASE("a rank that leaves is named at once, and the group stays failed") {
  const auto errors = errors_of_ranks(3, [](const std::shared_ptr<RankGroup>& group) {
    if (group->rank() == 2) return;
    std::string first;
    try {
      group->barrier();
    } catch (const Error& e) {
      first = e.message();
      // The other survivor may have noticed first and left too.
      require(has(first, "left the group"), first);
      require(has(first, "group \"test\", rank " + std::to_string(group->rank()) + " of 3: barrier #1"), first);
    }
    require(!first.empty(), "the barrier passed");
    group->barrier();
  });
  CHECK(has(text_of(errors[0]), "failed before"));
  CHECK(has(text_of(errors[1]), "failed before"));
  CHECK(errors[2] == nullptr);
}

TEST_CASE("a rank that does not answer is named when the time is up") {
  std::promise<void> waited;
  const auto errors = errors_of_ranks(
      2,
      [&](const std::shared_ptr<RankGroup>& group) {
        if (group->rank() == 1) {
          waited.get_future().wait();
          return;
        }
        try {
          group->barrier();
        } catch (...) {
          waited.set_value();
          throw;
        }
        waited.set_value();
      },
      milliseconds(300));
  CHECK(has(text_of(errors[0]), "barrier #1: waited 300 ms for rank 1"));
}

TEST_CASE("ranks that never join are named when the time is up") {
  try {
    RankGroup::host(MeetingPoint(), {"world", 0, 3, "", milliseconds(100)});
    FAIL("joined");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::process_failed);
    CHECK(has(e.message(), "group \"world\", rank 0 of 3: waited 100 ms for ranks 1, 2 to join"));
  }
  uint16_t closed_port = 0;
  {
    const MeetingPoint gone;
    closed_port = gone.port();
  }
  try {
    RankGroup::join("127.0.0.1", closed_port, {"world", 1, 2, "", milliseconds(100)});
    FAIL("joined");
  } catch (const Error& e) {
    CHECK(has(e.message(), "waited 100 ms for rank 0 at 127.0.0.1:" + std::to_string(closed_port) + " to listen"));
  }
}

TEST_CASE("a caller with another token is turned away and the group forms without it") {
  MeetingPoint point;
  const uint16_t port = point.port();
  auto host = std::async(std::launch::async, [&] {
    return RankGroup::host(std::move(point), {"g", 0, 2, "right", milliseconds(30'000)});
  });
  CHECK_THROWS_AS(RankGroup::join("127.0.0.1", port, {"g", 1, 2, "wrong", milliseconds(30'000)}), Error);
  auto member = std::async(std::launch::async, [&] {
    return RankGroup::join("127.0.0.1", port, {"g", 1, 2, "right", milliseconds(30'000)});
  });
  const auto hosted = host.get();
  const auto joined = member.get();
  auto other = std::async(std::launch::async, [&] { joined->barrier(); });
  hosted->barrier();
  other.get();
}

TEST_CASE("an address that is no IPv4 address is refused, not resolved") {
  CHECK_THROWS_AS(MeetingPoint("localhost"), Error);
  CHECK_THROWS_AS(RankGroup::join("localhost", 1, {"g", 1, 2, "", milliseconds(100)}), Error);
}
