#include "support/vllm/collective.hpp"

#include <chrono>
#include <cstring>
#include <future>

#include "base/strings.hpp"
#include "support/vllm/failures.hpp"
#include "support/vllm/pickle_reader.hpp"
#include "support/vllm/store_client.hpp"

namespace vime::stand_in {
namespace {

constexpr std::chrono::seconds kStoreTimeout{300};  // torch's own
constexpr const char* kIdType = "vllm.distributed.device_communicators.pynccl_wrapper ncclUniqueId";

template <typename Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

using Kind = PickleValue::Kind;

// _ctypes._unpickle(ncclUniqueId, ({}, bytes))
const PickleValue* id_bytes(const PickleValue& value) {
  if (!value.is(Kind::call) || value.children()[0].text != "_ctypes _unpickle") return nullptr;
  const PickleItems& arguments = value.children()[1].children();
  if (arguments.size() != 2 || !arguments[0].is(Kind::global) || arguments[0].text != kIdType) return nullptr;
  if (!arguments[1].is(Kind::tuple) || arguments[1].children().size() != 2) return nullptr;
  const PickleItems& state = arguments[1].children();
  if (!state[0].is(Kind::dict) || !state[1].is(Kind::bytes) || state[1].text.size() != kUniqueIdBytes) return nullptr;
  return &state[1];
}

Socket join(int worker, const GroupPlace& place, const std::string& id) {
  const std::string address = id.substr(0, id.find('\0'));
  const std::vector<std::string> parts = split(address, ':');
  if (parts.size() != 3 || parts[0] != "tcp") {
    throw WorkerError("worker " + std::to_string(worker) +
                      ": would call ncclCommInitRank with this unique id, but the stand-in has no NCCL");
  }
  Socket link = Socket::connect(parts[1], static_cast<uint16_t>(std::stoi(parts[2])), kStoreTimeout);
  const auto rank = static_cast<uint32_t>(place.rank_offset + worker);
  link.send(raw(rank) + raw(static_cast<uint32_t>(place.world_size)));
  link.send(raw(0.0f));
  link.receive(sizeof(float));
  return link;
}

}  // namespace

std::string unique_id_of(std::string_view pickle) {
  const PickleValue value = read_pickle(pickle);
  if (const PickleValue* bytes = id_bytes(value)) return bytes->text;
  throw WorkerError("argument 2: TypeError: expected ncclUniqueId instance instead of " + value.type_name());
}

Collective::Collective(const GroupPlace& place, int workers, Trace& trace) : trace_(trace) {
  std::vector<std::future<Socket>> joining;
  for (int worker = 0; worker < workers; ++worker) {
    joining.push_back(std::async(std::launch::async, [&place, &trace, worker] {
      if (!place.unique_id.empty()) return join(worker, place, place.unique_id);
      const std::string pickle = fetch_unique_id(worker, place.host, place.port, kStoreTimeout, trace);
      return join(worker, place, unique_id_of(pickle));
    }));
  }
  // All have to end before an error leaves: they refer to the arguments.
  for (auto& one : joining) one.wait();
  for (auto& one : joining) links_.push_back(one.get());
}

std::vector<std::byte> Collective::receive(std::size_t bytes) {
  trace_.line("broadcast " + std::to_string(bytes));
  std::vector<std::byte> first(bytes);
  links_.front().receive(first.data(), bytes);
  for (std::size_t worker = 1; worker < links_.size(); ++worker) {
    std::vector<std::byte> other(bytes);
    links_[worker].receive(other.data(), bytes);
    if (other != first) throw WorkerError("worker " + std::to_string(worker) + " received other bytes than worker 0");
  }
  return first;
}

}  // namespace vime::stand_in
