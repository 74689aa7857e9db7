// The engine worker's end of a push: turns init_info and update_info into full checkpoint tensors.
//   shm   init_info {"backend":"shm"}; update_info = manifest + {"handles": {uuid: {"handle", "offset", "bytes"}}}.
//         The worker takes its own UUID's entry, ignores foreign ones, and fails on a missing one. Mappings are opened
//         once and kept.
//   tcp   init_info {"backend":"tcp", "master_address", "master_port", "rank_offset", "world_size", "token"};
//   update_info = manifest.
//         The worker connects as rank rank_offset + worker; the bytes follow on that connection, one message per
//         update.
// One thread. receive() blocks until the bytes are there or the deadline has passed.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "tensor/tensor.hpp"
#include "weights/shared_arena.hpp"
#include "weights/tcp_channel.hpp"

namespace vime::weights {

class Receiver {
 public:
  // worker: index within the engine; uuid: of the worker's device.
  Receiver(int worker, std::string uuid, std::chrono::milliseconds timeout);

  void init(const Json& init_info);  // may come again: the new channel replaces the old one
  // Calls `take` for every tensor of the update, in manifest order. The view is valid during the call only.
  void receive(const Json& update_info, const std::function<void(const tensor::TensorView&)>& take);

 private:
  void receive_shared(const Json& update_info, const std::function<void(const tensor::TensorView&)>& take);
  void receive_network(const Json& update_info, const std::function<void(const tensor::TensorView&)>& take);

  int worker_;
  std::string uuid_;
  std::chrono::milliseconds timeout_;
  std::string backend_;
  std::map<std::string, std::unique_ptr<SharedMapping>> mappings_;  // by handle
  std::unique_ptr<TcpReceiver> connection_;
  std::vector<std::byte> buffer_;
};

}  // namespace vime::weights
