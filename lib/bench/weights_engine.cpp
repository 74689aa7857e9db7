#include "bench/weights_engine.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bench/model_lists.hpp"
#include "channels/device_arena.hpp"
#include "channels/nccl_channel.hpp"
#include "channels/shard_store.hpp"
#include "engine/executor.hpp"
#include "engine/server.hpp"
#include "gpu/device.hpp"
#include "gpu/raw_copy.hpp"
#include "weights/receiver.hpp"

namespace vime::bench {
namespace {

using channels::DeviceShardStore;
using channels::HostShardStore;
using channels::ShardStore;

// What one worker has. Made and used by threads that have selected its GPU.
class Worker {
 public:
  Worker(const ModelList& model, int index, int count, std::string uuid, bool on_gpu, milliseconds timeout)
      : uuid_(std::move(uuid)), layout_(layout_of(model, index, count)), receiver_(index, uuid_, timeout) {
    const auto ranks = [model](tensor::DType, int tp_size, int) { return rank_layouts(model, tp_size); };
    if (on_gpu) {
      gpu::select_device(uuid_);
      device_memory_ = std::make_unique<gpu::DeviceMemory>(layout_.total_bytes);
      auto store = std::make_unique<DeviceShardStore>(layout_, device_memory_->data(), model.tied_embeddings, ranks);
      receiver_.add_backend("ipc", weights::OpenMapping(channels::open_device_mapping));
      receiver_.add_backend(
          "nccl", weights::OpenNetwork([own = store.get()](const Json& info, const weights::NetworkPlace& place) {
            return std::make_unique<channels::NcclReceiver>(info, place, *own);
          }));
      store_ = std::move(store);
    } else {
      host_memory_.resize(layout_.total_bytes);
      store_ = std::make_unique<HostShardStore>(layout_, host_memory_.data(), model.tied_embeddings, ranks, nullptr);
    }
  }

  void select() const {
    if (device_memory_) gpu::select_device(uuid_);
  }
  std::byte* memory() { return device_memory_ ? device_memory_->data() : host_memory_.data(); }
  uint64_t bytes() const { return layout_.total_bytes; }
  bool on_gpu() const { return device_memory_ != nullptr; }
  ShardStore& store() { return *store_; }
  weights::Receiver& receiver() { return receiver_; }
  const arch::ArenaLayout& layout() const { return layout_; }

  void update(const Json& update_info) {
    receiver_.receive(
        update_info, [this](const weights::Bucket& bucket, const std::byte* base) { store_->take(bucket, base); },
        [this](const weights::Bucket& bucket, const weights::ReplicaMemory& replica) {
          store_->take_shards(bucket, replica);
        });
    store_->wait();
  }

 private:
  std::string uuid_;
  arch::ArenaLayout layout_;
  std::unique_ptr<gpu::DeviceMemory> device_memory_;
  std::vector<std::byte> host_memory_;
  std::unique_ptr<ShardStore> store_;
  weights::Receiver receiver_;
};

class WeightsExecutor final : public engine::Executor {
 public:
  WeightsExecutor(const ModelList& model, const std::vector<std::string>& uuids, bool on_gpu, milliseconds timeout) {
    for (std::size_t i = 0; i < uuids.size(); ++i) {
      workers_.push_back(std::make_unique<Worker>(model, static_cast<int>(i), static_cast<int>(uuids.size()), uuids[i],
                                                  on_gpu, timeout));
    }
  }

  // At the same time, each on a thread that has its GPU selected; the first error of them.
  void on_all(const std::function<void(Worker&, std::size_t)>& step) {
    std::vector<std::future<void>> running;
    for (std::size_t i = 1; i < workers_.size(); ++i) {
      running.push_back(std::async(std::launch::async, [&, i] {
        workers_[i]->select();
        step(*workers_[i], i);
      }));
    }
    std::exception_ptr failure;
    try {
      workers_[0]->select();
      step(*workers_[0], 0);
    } catch (...) {
      failure = std::current_exception();
    }
    for (std::future<void>& worker : running) {
      try {
        worker.get();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
  }
  std::size_t size() const { return workers_.size(); }

  int world_size() const override { return static_cast<int>(workers_.size()); }
  int64_t max_slots() const override { return 1; }
  int64_t max_model_len() const override { return 1; }
  int64_t max_batch_rows() const override { return 1; }
  std::vector<engine::Sampled> step(const engine::Batch&) override {
    throw Error(ErrorKind::refused, "this engine holds weights and generates nothing");
  }
  void init_transfer(const Json& init_info) override {
    on_all([&](Worker& worker, std::size_t) { worker.receiver().init(init_info); });
  }
  void start_update() override {
    on_all([](Worker& worker, std::size_t) { worker.store().start(); });
  }
  void update(const Json& update_info) override {
    on_all([&](Worker& worker, std::size_t) { worker.update(update_info); });
  }
  void finish_update() override {
    for (const auto& worker : workers_) {
      const std::vector<std::string> missing = worker->store().missing();
      if (!missing.empty()) throw Error(ErrorKind::refused, "never sent: " + missing.front());
    }
  }
  std::map<std::string, uint64_t> checksums() override {
    std::vector<std::vector<uint64_t>> parts(workers_.size());
    on_all([&](Worker& worker, std::size_t i) { parts[i] = worker.store().checksums(); });
    std::map<std::string, uint64_t> sums;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      const std::vector<arch::ArenaEntry>& entries = workers_[i]->layout().entries;
      for (std::size_t entry = 0; entry < entries.size(); ++entry) {
        if (entries[entry].shard.owner()) sums[entries[entry].parameter.full.name] += parts[i][entry];
      }
    }
    return sums;
  }
  void reload(const std::string&) override {}
  void sleep(int) override {}
  void wake(bool, bool) override {}

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
};

Json plain_copies(WeightsExecutor& executor, const Json& call) {
  std::vector<double> ms(executor.size());
  executor.on_all([&](Worker& worker, std::size_t i) {
    const std::unique_ptr<weights::Mapping> mapping =
        channels::open_device_mapping(call.at("handles").at(i).get<std::string>());
    const uint64_t bytes = std::min({call.at("bytes").get<uint64_t>(), worker.bytes(), mapping->bytes()});
    ms[i] = gpu::quickest_copy_ms(mapping->data(), worker.memory(), bytes, call.at("repeat").get<int>());
  });
  return {{"ms", *std::max_element(ms.begin(), ms.end())}};
}

Json plain_broadcasts(WeightsExecutor& executor, const Json& call, milliseconds timeout) {
  executor.on_all([&](Worker& worker, std::size_t i) {
    const uint64_t bytes = call.at("bytes").get<uint64_t>();
    VIME_CHECK(bytes <= worker.bytes(), "a broadcast of more than the worker holds");
    const int ranks = 1 + static_cast<int>(executor.size());
    gpu::Communicator group({"plain", 1 + static_cast<int>(i), ranks, timeout, {}},
                            call.at("unique_id").get<std::string>());
    const gpu::OwnedStream stream;
    for (int n = call.at("repeat").get<int>(); n > 0; --n) {
      group.broadcast(worker.memory(), bytes, 0, stream.get());
      group.wait(stream.get());
    }
  });
  return Json::object();
}

Json free_memory(WeightsExecutor& executor) {
  std::vector<uint64_t> free_bytes(executor.size());
  executor.on_all([&](Worker& worker, std::size_t i) {
    if (worker.on_gpu()) free_bytes[i] = gpu::memory_info().free_bytes;
  });
  return {{"free", free_bytes}};
}

}  // namespace

int serve_weights(const Json& options) {
  const milliseconds timeout(json_int(options, "timeout_ms", "options"));
  const auto uuids = options.at("uuids").get<std::vector<std::string>>();
  WeightsExecutor executor(model_list(json_string(options, "model", "options")), uuids,
                           json_bool(options, "gpu", "options"), timeout);
  engine::ServerOptions server_options;
  server_options.model_name = "weights";
  server_options.vocab_size = 1;
  server_options.weights_loaded = false;
  engine::EngineServer server(server_options, executor, {});
  server.start();
  std::cout << Json{{"port", server.port()}}.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    Json reply;
    try {
      const Json call = parse_json(line, "command");
      const std::string name = json_string(call, "call", "command");
      if (name == "copy") reply = plain_copies(executor, call);
      if (name == "broadcast") reply = plain_broadcasts(executor, call, timeout);
      if (name == "memory") reply = free_memory(executor);
      if (reply.is_null()) throw Error(ErrorKind::internal, "unknown call " + name);
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
  server.stop();
  return 0;
}

}  // namespace vime::bench
