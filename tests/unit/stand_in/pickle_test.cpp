// The pickle reader against what CPython wrote, and against what CPython refuses.
#include <doctest/doctest.h>

#include "base/hex.hpp"
#include "payloads.hpp"
#include "support/vllm/collective.hpp"
#include "support/vllm/failures.hpp"
#include "support/vllm/ipc_payload.hpp"
#include "support/vllm/pickle_reader.hpp"

using namespace vime;
using namespace vime::stand_in;

namespace {

constexpr const char* kUuid = "57a4d100-0000-4000-8000-000000000000";

// {uuid: (Tensor, Size((300,)), (1,), 0, TypedStorage, uint8, 1, b"\x02c" + bytes(range(64)), 70000, 512, False,
// b"/torch_1_2", 3, bytes(64), False)}, dumped by CPython 3.11 at protocols 3 and 5.
const std::string kProtocol3 =
    "80037d7100582400000035376134643130302d303030302d343030302d383030302d30303030303030303030303071012863"
    "746f7263680a54656e736f720a710263746f7263680a53697a650a71034d2c018571048571055271064b018571074b006374"
    "6f7263682e73746f726167650a547970656453746f726167650a710863746f7263680a75696e74380a71094b014342026300"
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132"
    "333435363738393a3b3c3d3e3f710a4a701101004d000289430a2f746f7263685f315f32710b4b0343400000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000710c8974710d732e";
const std::string kProtocol5 =
    "8005952b010000000000007d948c2435376134643130302d303030302d343030302d383030302d3030303030303030303030"
    "3094288c05746f726368948c0654656e736f7294939468028c0453697a659493944d2c018594859452944b0185944b008c0d"
    "746f7263682e73746f72616765948c0c547970656453746f7261676594939468028c0575696e74389493944b014342026300"
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132"
    "333435363738393a3b3c3d3e3f944a701101004d000289430a2f746f7263685f315f32944b03434000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000094897494732e";
// A ctypes ncclUniqueId whose bytes are 7 * i % 128, at protocol 4.
const std::string kUniqueId =
    "800495ec000000000000008c075f637479706573948c095f756e7069636b6c659493948c34766c6c6d2e6469737472696275"
    "7465642e6465766963655f636f6d6d756e696361746f72732e70796e63636c5f77726170706572948c0c6e63636c556e6971"
    "756549649493947d94438000070e151c232a31383f464d545b626970777e050c131a21282f363d444b525960676e757c030a"
    "11181f262d343b424950575e656c737a01080f161d242b323940474e555c636a71787f060d141b222930373e454c535a6168"
    "6f767d040b121920272e353c434a51585f666d747b020910171e252c333a41484f565d646b7279948694869452942e";

std::string unhex(const std::string& text) {
  std::string bytes(text.size() / 2, '\0');
  REQUIRE(parse_hex(text, bytes.data(), bytes.size()));
  return bytes;
}

std::string failure_of(const std::string& pickle) {
  try {
    read_pickle(pickle);
  } catch (const WorkerError& error) {
    return error.what();
  }
  return "";
}

std::string open_failure(const std::string& value, const std::string& version = "G2c") {
  try {
    open_ipc_tensor(read_pickle(whole_pickle(pickled_dict({kUuid}, value))), kUuid, flavour_of(version));
  } catch (const WorkerError& error) {
    return error.what();
  }
  return "";
}

Handle small_handle() {
  return {std::string(64, 'h'), "uint8", {8}, 8, 0};
}

// The tuple with one of its parts put into another's place.
std::string replaced(std::string pickle, const std::string& part, const std::string& by) {
  const std::size_t at = pickle.find(part);
  REQUIRE(at != std::string::npos);
  return pickle.replace(at, part.size(), by);
}

}  // namespace

TEST_CASE("what CPython dumps is read at every protocol") {
  for (const std::string& dump : {kProtocol3, kProtocol5}) {
    const PickleValue value = read_pickle(unhex(dump));
    REQUIRE(value.is(PickleValue::Kind::dict));
    CHECK(value.children()[0].text == kUuid);
    const PickleItems& arguments = value.children()[1].children();
    REQUIRE(arguments.size() == 15);
    CHECK(arguments[0].text == "torch Tensor");
    CHECK(arguments[1].is(PickleValue::Kind::call));
    CHECK(arguments[5].text == "torch uint8");
    CHECK(arguments[7].text.substr(0, 3) == std::string("\x02"
                                                        "c\0",
                                                        3));
    CHECK(arguments[8].integer == 70000);
    CHECK(arguments[14].type_name() == "bool");
  }
}

TEST_CASE("a unique id is taken from CPython's pickle and from the short one, and from nothing else") {
  const std::string id = unique_id_of(unhex(kUniqueId));
  REQUIRE(id.size() == 128);
  CHECK(id[1] == 7);
  CHECK(id[127] == 127 * 7 % 128);
  CHECK(pickled_unique_id("tcp:127.0.0.1:99").size() == 223);
  CHECK(unique_id_of(pickled_unique_id("tcp:127.0.0.1:99")).substr(0, 17) == std::string("tcp:127.0.0.1:99\0", 17));
  CHECK_THROWS_WITH_AS(unique_id_of(std::string("\x80\x03"
                                                "C\x02"
                                                "ab.",
                                                7)),
                       doctest::Contains("expected ncclUniqueId instance instead of bytes"), WorkerError);
}

TEST_CASE("pickles that CPython refuses are refused in its words, those that it takes are taken") {
  CHECK(failure_of("") == "Ran out of input");
  CHECK(failure_of(std::string("\x80\x06N.", 4)) == "unsupported pickle protocol: 6");
  CHECK(failure_of(std::string("\x80\x03", 2)) == "Ran out of input");
  CHECK(failure_of(std::string("\x80\x03K", 3)) == "pickle data was truncated");
  CHECK(failure_of(std::string("\x80\x03M\x01", 4)) == "pickle data was truncated");
  CHECK(failure_of(std::string("\x80\x03t.", 4)) == "could not find MARK");
  CHECK(read_pickle(std::string("\x80\x03(N.", 5)).type_name() == "NoneType");
  CHECK(failure_of(std::string("\x80\x03.", 3)) == "unpickling stack underflow");
  CHECK(failure_of(std::string("\x80\x03\xff.", 4)) == "invalid load key, '\\xff'.");
  CHECK(failure_of(std::string("\x80\x03h\x05.", 5)) == "Memo value not found at index 5");
  CHECK(failure_of(std::string("\x80\x03]NNs.", 7)) == "list indices must be integers or slices, not NoneType");
}

TEST_CASE("integers of all widths are read with their sign") {
  CHECK(read_pickle(std::string("\x80\x03J\xff\xff\xff\xff.", 8)).integer == -1);
  CHECK(read_pickle(std::string("\x80\x03\x8a\x02\x00\x80.", 7)).integer == -32768);
  CHECK(read_pickle(std::string("\x80\x03\x8a\x05\x00\x00\x00\x00\x01.", 10)).integer == int64_t{1} << 32);
}

TEST_CASE("base64 is Python's") {
  CHECK(decode_base64("aGVsbG8=") == "hello");
  CHECK(decode_base64("aGVs\nbG8h") == "hello!");
  CHECK_THROWS_WITH(decode_base64("aGVsbG8"), "Incorrect padding");
  CHECK(decode_base64(base64(std::string("\0\xff\x10"
                                         "a",
                                         4))) == std::string("\0\xff\x10"
                                                             "a",
                                                             4));
}

TEST_CASE("an argument of a wrong type is refused") {
  const std::string whole = pickled_arguments(small_handle());
  CHECK(open_failure(whole) == "CUDA error: invalid resource handle");
  const std::string event = "C\x40" + std::string(64, '\0');
  CHECK(open_failure(replaced(whole, event, "N")).find("argument 13: expected bytes, found NoneType") !=
        std::string::npos);
  CHECK(open_failure(replaced(whole, "C\x05/none", "N")).find("argument 11: expected bytes") != std::string::npos);
  CHECK(open_failure(replaced(whole, event + "\x89", event + std::string("K\0", 2)))
            .find("argument 14: expected bool, found int") != std::string::npos);
  CHECK(open_failure(replaced(whole, "ctorch\nuint8\n", "ctorch\nuint9\n")) ==
        "module 'torch' has no attribute 'uint9'");
  CHECK(open_failure(replaced(whole, "ctorch\nTensor\n", "N")).find("torch Tensor") != std::string::npos);
}

TEST_CASE("each release wants its own form of the value") {
  const Handle handle = small_handle();
  CHECK(open_failure(pickled_call(handle), "G2a") == "CUDA error: invalid resource handle");
  CHECK(open_failure(pickled_arguments(handle), "G2a") == "too many values to unpack (expected 2)");
  for (const char* version : {"G2b", "G2c", "G3"})
    CHECK(open_failure(pickled_call(handle), version) == "list assignment index out of range");
}

TEST_CASE("memory handles have 64 bytes, or a version that the release knows before them") {
  Handle handle = small_handle();
  handle.bytes =
      "\x03"
      "c" +
      std::string(64, 'h');
  CHECK(open_failure(pickled_arguments(handle), "G2c").find("future version of torch") != std::string::npos);
  CHECK(open_failure(pickled_arguments(handle), "G3") == "CUDA error: invalid resource handle");
  handle.bytes =
      "\x02"
      "e" +
      std::string(64, 'h');
  CHECK(open_failure(pickled_arguments(handle)).find("expandable segments") != std::string::npos);
  handle.bytes = std::string(63, 'h');
  CHECK(open_failure(pickled_arguments(handle)) != "CUDA error: invalid resource handle");
  handle = small_handle();
  handle.shape = {9};
  CHECK(open_failure(pickled_arguments(handle)).find("out of bounds for storage of size 8") != std::string::npos);
}

TEST_CASE("a worker that finds no entry of its UUID says which there are") {
  const PickleValue handles = read_pickle(whole_pickle(pickled_dict({"a", "b"}, pickled_arguments(small_handle()))));
  CHECK_THROWS_WITH(open_ipc_tensor(handles, "c", flavour_of("G3")),
                    "IPC handle not found for GPU UUID c. Available UUIDs: ['a', 'b']");
}
