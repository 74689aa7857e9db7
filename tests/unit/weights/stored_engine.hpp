// An engine without a model for tests of the push: the real HTTP front and the real receivers, and workers that keep
// the bytes they are given. One process; worker i is on the device with uuids[i].
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/executor.hpp"
#include "engine/server.hpp"
#include "weights/checksum.hpp"
#include "weights/engine_client.hpp"
#include "weights/receiver.hpp"

namespace vime::weights {

class StoredExecutor final : public engine::Executor {
 public:
  StoredExecutor(const std::vector<std::string>& uuids, std::chrono::milliseconds timeout) {
    for (size_t i = 0; i < uuids.size(); ++i) receivers_.emplace_back(static_cast<int>(i), uuids[i], timeout);
    stored_.resize(uuids.size());
  }

  // The update that fails, counted from 1 over the executor's lifetime; 0: none.
  int failing_update = 0;
  // Called before a worker reads its part of an update, with the update's number and the worker.
  std::function<void(int update, int worker)> before_worker;
  // What makes whole tensors, each at its offset, of a replica's shards.
  std::function<std::vector<std::byte>(const Bucket& bucket, const ReplicaMemory& replica)> put_together;
  int finishes = 0;
  std::map<std::string, int> arrivals;  // of each tensor at each worker, since the last start, added up

  int world_size() const override { return static_cast<int>(receivers_.size()); }
  int64_t max_slots() const override { return 4; }
  int64_t max_model_len() const override { return 64; }
  int64_t max_batch_rows() const override { return 16; }
  std::vector<engine::Sampled> step(const engine::Batch& batch) override {
    return std::vector<engine::Sampled>(batch.samples.size());
  }
  void init_transfer(const Json& init_info) override {
    for (Receiver& receiver : receivers_) receiver.init(init_info);
  }
  void start_update() override { arrivals.clear(); }
  void update(const Json& update_info) override {
    if (++updates_ == failing_update)
      throw Error(ErrorKind::refused, "planted failure of update " + std::to_string(updates_));
    for (size_t worker = 0; worker < receivers_.size(); ++worker) {
      if (before_worker) before_worker(updates_, static_cast<int>(worker));
      const TakeBucket take = [&](const Bucket& bucket, const std::byte* base) {
        for (const BucketEntry& entry : bucket.entries) {
          const std::byte* data = base + entry.offset;
          ++arrivals[entry.info.name];
          stored_[worker][entry.info.name] = {entry.info, {data, data + entry.info.bytes()}};
        }
      };
      receivers_[worker].receive(update_info, take, [&](const Bucket& bucket, const ReplicaMemory& replica) {
        const std::vector<std::byte> wholes = put_together(bucket, replica);
        take(bucket, wholes.data());
      });
    }
  }
  void finish_update() override { ++finishes; }
  std::map<std::string, uint64_t> checksums() override {
    std::map<std::string, uint64_t> sums;
    for (const auto& worker : stored_) {
      for (const auto& [name, tensor] : worker) {
        const uint64_t sum = full_checksum({tensor.info, tensor.bytes.data()});
        if (sums.contains(name) && sums[name] != sum) throw Error(ErrorKind::refused, "workers differ in " + name);
        sums[name] = sum;
      }
    }
    return sums;
  }
  void reload(const std::string&) override {}
  void sleep(int) override {}
  void wake(bool, bool) override {}

 private:
  struct Stored {
    tensor::TensorInfo info;
    std::vector<std::byte> bytes;
  };
  std::vector<Receiver> receivers_;
  std::vector<std::map<std::string, Stored>> stored_;
  int updates_ = 0;
};

struct StoredEngine {
  explicit StoredEngine(int id, const std::vector<std::string>& uuids,
                        std::chrono::milliseconds timeout = std::chrono::milliseconds(10000))
      : executor(uuids, timeout), server(options(), executor, {}) {
    server.start();
    client = std::make_unique<EngineClient>(
        http, EngineAddress{id, "http://127.0.0.1:" + std::to_string(server.port()), ""}, timeout);
  }
  static engine::ServerOptions options() {
    engine::ServerOptions options;
    options.model_name = "/models/stored";
    options.vocab_size = 10;
    options.weights_loaded = false;
    return options;
  }

  StoredExecutor executor;
  engine::EngineServer server;
  http::Client http;
  std::unique_ptr<EngineClient> client;
};

}  // namespace vime::weights
