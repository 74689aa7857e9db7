// The ipc backend: what update_info may hold in which release, packed buffers, several workers.
#include <cstring>

#include "checkpoints.hpp"
#include "payloads.hpp"
#include "served.hpp"
#include "weights/shared_arena.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

const std::vector<std::string> kUuids = {"aaaaaaaa-0000-4000-8000-000000000001",
                                         "aaaaaaaa-0000-4000-8000-000000000002"};

ServeOptions options_of(const std::string& version, const TempDir& modules, int workers = 1) {
  write_file_atomic(modules.path() / "ray.py", "");
  return {.version = version,
          .arguments = {"--weight-transfer-config", R"({"backend":"ipc"})", "-tp", std::to_string(workers)},
          .env = {"VLLM_ALLOW_INSECURE_SERIALIZATION=1", "PYTHONPATH=" + modules.path().string(),
                  "VIME_STAND_IN_UUIDS=" + kUuids[0] + "," + kUuids[1]}};
}

// All tensors of the checkpoint in one buffer.
struct Packed {
  explicit Packed(const Checkpoint& given) : checkpoint(given), arena(4u << 20) {
    for (const Tensor& tensor : checkpoint) {
      std::memcpy(arena.data() + bytes, tensor.bytes.data(), tensor.bytes.size());
      bytes += static_cast<int64_t>(tensor.bytes.size());
      sizes.push_back(tensor.bytes.size());
    }
  }
  Json info(const std::vector<std::string>& uuids, bool says_packed) const {
    std::string name = arena.handle();
    name.resize(64);
    const Handle handle{
        "\x02"
        "c" +
            name,
        "uint8",
        {bytes},
        bytes,
        0};
    Json lists = update_lists(checkpoint, 0, checkpoint.size());
    lists["tensor_sizes"] = sizes;
    lists["ipc_handles_pickled"] = base64(whole_pickle(pickled_dict(uuids, pickled_arguments(handle))));
    if (says_packed) lists["packed"] = true;
    return lists;
  }
  const Checkpoint& checkpoint;
  weights::SharedArena arena;
  int64_t bytes = 0;
  std::vector<std::size_t> sizes;
};

std::string body(const Json& info) {
  return Json{{"update_info", info}}.dump();
}

}  // namespace

TEST_CASE("a packed push of two workers is found by each under its own UUID") {
  const Checkpoint checkpoint = changed(read_checkpoint(VIME_TEST_DATA "/models/qwen3"));
  const Packed packed(checkpoint);
  const TempDir folder;
  write_checkpoint(checkpoint, folder.path());
  Served expected({.model = folder.path().string()});
  for (const char* version : {"G2b", "G2c", "G3"}) {
    CAPTURE(version);
    const bool newest = std::string(version) == "G3";
    const TempDir modules;
    Served served(options_of(version, modules, 2));
    const std::string init = newest ? R"({"init_info":{"packed":true}})" : R"({"init_info":{}})";
    CHECK(served.post("/init_weight_transfer_engine", init).status == 200);
    CHECK(served.post("/start_weight_update", "{}").status == 200);
    // Entries of other GPUs are ignored.
    const Json info = packed.info({"another", kUuids[1], kUuids[0]}, !newest);
    const http::Reply reply = served.post("/update_weights", body(info));
    CHECK_MESSAGE(reply.status == 200, reply.body);
    CHECK(served.post("/finish_weight_update").status == 200);
    CHECK(served.prompt_logprobs(kPrompt) == expected.prompt_logprobs(kPrompt));
  }
}

TEST_CASE("a worker without an entry fails the update, with the executor's words around it") {
  const Checkpoint checkpoint = read_checkpoint(VIME_TEST_DATA "/models/qwen3");
  const Packed packed(checkpoint);
  const TempDir modules;
  Served served(options_of("G3", modules, 2));
  served.post("/init_weight_transfer_engine", R"({"init_info":{"packed":true}})");
  served.post("/start_weight_update");
  const http::Reply reply = served.post("/update_weights", body(packed.info({kUuids[0]}, false)));
  check_error(reply, 500,
              "Call to collective_rpc method failed: Worker failed with error 'IPC handle not found for GPU "
              "UUID " +
                  kUuids[1] + ". Available UUIDs: ['" + kUuids[0] + "']'");
  CHECK(parse_json(reply.body)["error"]["type"] == "InternalServerError");
}

TEST_CASE("each release takes its own keys and no others") {
  const Checkpoint checkpoint = read_checkpoint(VIME_TEST_DATA "/models/qwen3");
  const Packed packed(checkpoint);
  const auto refused = [&](const char* version, const Json& info, const std::string& text) {
    CAPTURE(version);
    const TempDir modules;
    Served served(options_of(version, modules));
    served.post("/start_weight_update", "{}");
    check_error(served.post("/update_weights", body(info)), 500, text);
  };
  const std::string unexpected =
      "Invalid update_info for IPCWeightTransferEngine: IPCWeightTransferUpdateInfo.__init__() got an unexpected "
      "keyword argument ";
  refused("G3", packed.info({kUuids[0]}, true), unexpected + "'packed'");
  refused("G2a", packed.info({kUuids[0]}, true), unexpected + "'tensor_sizes'");
  Json extra = packed.info({kUuids[0]}, true);
  extra["version"] = 3;
  refused("G2c", extra, unexpected + "'version'");
  Json unpacked = packed.info({kUuids[0]}, false);
  refused("G2c", unpacked,
          "`ipc_handles` should be of the same size as `names`: got 1 and " + std::to_string(checkpoint.size()));
  Json none = packed.info({kUuids[0]}, true);
  none.erase("ipc_handles_pickled");
  refused("G2c", none, "Either `ipc_handles` or `ipc_handles_pickled` must be provided");
  Json both = packed.info({kUuids[0]}, true);
  both["ipc_handles"] = Json::array();
  refused("G2c", both, "Cannot specify both");
  Json garbled = packed.info({kUuids[0]}, true);
  garbled["ipc_handles_pickled"] = "gASV";
  refused("G2c", garbled, "pickle data was truncated");
  Json sizes = packed.info({kUuids[0]}, true);
  sizes["tensor_sizes"][0] = 8;
  refused("G2c", sizes, "is invalid for input of size");
  Json names = packed.info({kUuids[0]}, true);
  names["names"][0] = "model.no_such.weight";
  refused("G2c", names, "There is no module or parameter named 'model.no_such.weight' in Qwen3ForCausalLM");
  Json dtype = packed.info({kUuids[0]}, true);
  dtype["dtype_names"][0] = "bfloat17";
  refused("G2c", dtype, "module 'torch' has no attribute 'bfloat17'");
}

TEST_CASE("a slice that does not begin at a multiple of its element size is torch's error") {
  weights::SharedArena arena(64);
  std::string name = arena.handle();
  name.resize(64);
  const TempDir modules;
  ServeOptions options = options_of("G3", modules);
  options.model = VIME_TEST_DATA "/models/qwen3_tied_mha";
  Served served(options);
  served.post("/init_weight_transfer_engine", R"({"init_info":{"packed":true}})");
  served.post("/start_weight_update");
  // A tied model skips the head, whatever its shape.
  const std::string handle =
      base64(whole_pickle(pickled_dict({kUuids[0]}, pickled_arguments({name, "uint8", {18}, 18, 0}))));
  const Json info = {{"names", {"lm_head.weight", "model.norm.weight"}},
                     {"dtype_names", {"uint8", "float32"}},
                     {"shapes", parse_json("[[2],[4]]")},
                     {"tensor_sizes", {2, 16}},
                     {"ipc_handles_pickled", handle}};
  check_error(
      served.post("/update_weights", body(info)), 500,
      "self.storage_offset() must be divisible by 4 to view Byte as Float (different element sizes), but got 2");
}

TEST_CASE("pickles are refused without the environment's consent") {
  const Checkpoint checkpoint = read_checkpoint(VIME_TEST_DATA "/models/qwen3");
  const Packed packed(checkpoint);
  const TempDir modules;
  ServeOptions options = options_of("G3", modules);
  options.env.front() = "VLLM_ALLOW_INSECURE_SERIALIZATION=0";
  Served served(options);
  served.post("/start_weight_update");
  check_error(served.post("/update_weights", body(packed.info({kUuids[0]}, false))), 500,
              "Refusing to deserialize `ipc_handles_pickled` without VLLM_ALLOW_INSECURE_SERIALIZATION=1");
}
