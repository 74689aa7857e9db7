// The messages that a client of PyTorch's TCPStore sends (torch 2.4 to 2.13): one byte for the command, then its
// arguments. Numbers are little-endian; a text is its length as u64 and its bytes; a list is its length as u64 and its
// texts. Nothing marks a message's end. Pure.
//   0 validate     u32 kStoreMagic                     1 set          key, value
//   2 compare_set  key, expected, desired              3 get          key
//   4 add          key, i64                            5 check        keys
//   6 wait         keys                                7 count_keys
//   8 delete_key   key                                 9 append       key, value
//   10 multi_get   keys                                11 multi_set   count, then key, value of each
//   12 cancel_wait                                     13 ping        u32
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vime::vllm {

constexpr uint32_t kStoreMagic = 0x3C85F7CE;
// No message is longer; those of vLLM have some hundred bytes.
constexpr uint64_t kMaxStoreMessage = 4u << 20;

enum class StoreCommand : uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  count_keys,
  delete_key,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
};

struct StoreMessage {
  StoreCommand command = StoreCommand::validate;
  std::vector<std::string> keys;
  std::vector<std::string> values;  // of multi_set one for each key; of compare_set expected and desired
  int64_t number = 0;               // magic, nonce or what to add
};

// Takes a message from the front of `bytes`; nothing, and leaves them, when it has not come whole. Throws
// Error{refused} for an unknown command and for a message above the limit.
std::optional<StoreMessage> take_store_message(std::string_view& bytes);

}  // namespace vime::vllm
