// The servers of a run: what vime sets on their command lines cannot be set by the spec as well.
#include "loop/vllm_servers.hpp"

#include <doctest/doctest.h>

#include <set>

#include "base/error.hpp"
#include "spec/load.hpp"

using namespace vime;
using namespace vime::loop;

TEST_CASE("every flag that vime gives a server is refused in engine.vllm_args") {
  fleet::VllmLaunch launch;
  launch.device_uuids = {"aaaa"};
  launch.transfer_backend = "ipc";
  launch.sleeps = true;
  int flags = 0;
  for (const std::string& word : fleet::vllm_command(launch).argv) {
    if (!word.starts_with("--")) continue;
    CAPTURE(word);
    ++flags;
    try {
      spec::load(VIME_SOURCE_DIR "/configs/vllm-cpu.yaml", {"engine.vllm_args=[" + word + "]"});
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.message().find(word + ", which vime sets itself") != std::string::npos);
    }
  }
  CHECK(flags >= 14);
}

TEST_CASE("heads that vLLM's attention on CPUs does not take are refused before anything is started") {
  const std::string config = VIME_SOURCE_DIR "/configs/vllm-cpu.yaml";
  CHECK_NOTHROW(prepare(spec::load(config, {}), ""));
  try {
    prepare(spec::load(config, {"model.preset=tiny"}), "");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    CHECK(error.message().find("heads are 16 wide; vLLM's attention on CPUs takes 32, 64,") != std::string::npos);
  }
}

TEST_CASE("free ports are different, and can be listened on") {
  const std::vector<uint16_t> ports = free_ports(20);
  CHECK(std::set<uint16_t>(ports.begin(), ports.end()).size() == 20);
  CHECK(ports.front() > 0);
}
