// The JSON that vLLM's weight routes take, with exactly the keys of the server's release: an unknown key is an error
// there. Pure. What a release cannot do is Error{refused}.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/json.hpp"
#include "tensor/tensor.hpp"
#include "vllm/dialect.hpp"

namespace vime::vllm {

using NcclUniqueId = std::array<std::byte, 128>;

// How tensors are packed for NCCL. Both ends must cut at the same size (vllm/packed_chunks.hpp).
struct NcclPacking {
  uint64_t buffer_bytes = 1u << 30;
  int buffers = 2;  // the worker's own double buffering
};

// The group of the trainer, rank 0, and all workers of all servers.
struct NcclPlace {
  int rank_offset = 1;  // the rank of this server's first worker
  int world_size = 2;   // of the whole group
};

// Bodies of /start_weight_update and /finish_weight_update; null: none. The version is left out where finish takes
// none.
Json start_body(const Dialect& dialect);
Json finish_body(const Dialect& dialect, int64_t weight_version);

// "init_info" of /init_weight_transfer_engine.
Json ipc_init_info(const Dialect& dialect, bool packed);
// By a store (vllm/store_server.hpp) that has the group's unique id.
Json nccl_init_info(const Dialect& dialect, const std::string& store_host, uint16_t store_port, const NcclPlace& place,
                    const std::optional<NcclPacking>& packing);
// By the unique id itself, where dialect.nccl_takes_unique_id.
Json nccl_init_info(const Dialect& dialect, const NcclUniqueId& id, const NcclPlace& place,
                    const std::optional<NcclPacking>& packing);

// "update_info" of /update_weights. `pickle`: one of vllm/pickle.hpp, its bytes. No tensors at all is a bug of the
// caller: the newest servers take it for "the same tensors as last time" and wait for their broadcasts.
Json ipc_update_info(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors, const std::string& pickle);
Json ipc_packed_update_info(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors,
                            const std::string& pickle);
Json nccl_update_info(const Dialect& dialect, std::span<const tensor::TensorInfo> tensors,
                      const std::optional<NcclPacking>& packing);

}  // namespace vime::vllm
