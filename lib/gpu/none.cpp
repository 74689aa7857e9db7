// This room in a build without CUDA.
#include "base/error.hpp"
#include "gpu/communicator.hpp"
#include "gpu/copies.hpp"
#include "gpu/device.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/ipc.hpp"
#include "gpu/pinned_memory.hpp"
#include "gpu/raw_copy.hpp"
#include "gpu/reserved_memory.hpp"
#include "gpu/streams.hpp"

namespace vime::gpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::refused, "this vime was built without CUDA",
              "configure with -DVIME_CUDA=ON on a machine with the CUDA toolkit and NCCL");
}

}  // namespace

bool built() {
  return false;
}
int devices_on_gpu() {
  return 1;
}

int select_device(const std::string&) {
  refuse();
}
bool reaches(const std::string&) {
  refuse();
}
void read_from(const std::string&) {
  refuse();
}
int device_count() {
  return 0;
}
std::string device_uuid(int) {
  refuse();
}
MemoryInfo memory_info() {
  refuse();
}
void synchronize() {
  refuse();
}

DeviceMemory::DeviceMemory(uint64_t bytes, Use) : bytes_(bytes) {
  refuse();
}
DeviceMemory::~DeviceMemory() = default;
std::string DeviceMemory::handle() const {
  refuse();
}

IpcMapping::IpcMapping(const std::string&) {
  refuse();
}
IpcMapping::~IpcMapping() = default;

ReservedMemory::ReservedMemory(uint64_t) {
  refuse();
}
ReservedMemory::~ReservedMemory() = default;
void ReservedMemory::commit() {
  refuse();
}
void ReservedMemory::release() {
  refuse();
}

PinnedMemory::PinnedMemory(uint64_t) {
  refuse();
}
PinnedMemory::~PinnedMemory() = default;
void copy_memory(void*, const void*, uint64_t) {
  refuse();
}
void copy_memory(void*, const void*, uint64_t, Stream) {
  refuse();
}

uint64_t bytes_of(Scalar) {
  refuse();
}

struct Communicator::State {};
std::string Communicator::unique_id() {
  refuse();
}
Communicator::Communicator(CommunicatorOptions, const std::string&) {
  refuse();
}
Communicator::~Communicator() = default;
int Communicator::rank() const {
  refuse();
}
int Communicator::size() const {
  refuse();
}
const std::string& Communicator::group() const {
  refuse();
}
void Communicator::broadcast(void*, uint64_t, int, Stream) {
  refuse();
}
void Communicator::all_gather(const void*, void*, uint64_t, Stream) {
  refuse();
}
void Communicator::all_reduce(const void*, void*, uint64_t, Scalar, Reduction, Stream) {
  refuse();
}
void Communicator::reduce_scatter(const void*, void*, uint64_t, Scalar, Reduction, Stream) {
  refuse();
}
void Communicator::exchange(const std::vector<Send>&, const std::vector<Receive>&, Stream) {
  refuse();
}
void Communicator::wait(Stream) {
  refuse();
}
void Communicator::wait(const Event&) {
  refuse();
}
void Communicator::wait_until(const std::function<bool()>&) {
  refuse();
}
void Communicator::leave(const std::string&) {
  refuse();
}
bool Communicator::broken() const {
  refuse();
}

struct Copies::Group {};
Copies::Copies(const std::vector<Copy>& given, bool) : count_(given.size()) {
  refuse();
}
Copies::~Copies() = default;
void Copies::run(Stream) {
  refuse();
}
std::vector<uint64_t> Copies::sums(Stream) const {
  refuse();
}

OwnedStream::OwnedStream(Priority) {
  refuse();
}
OwnedStream::~OwnedStream() = default;
void OwnedStream::synchronize() const {
  refuse();
}
Event::Event(bool) {
  refuse();
}
Event::~Event() = default;
void Event::record(Stream) {
  refuse();
}
void Event::hold_back(Stream) const {
  refuse();
}
bool Event::done() const {
  refuse();
}
float Event::since(const Event&) const {
  refuse();
}

double quickest_copy_ms(const std::byte*, std::byte*, uint64_t, int) {
  refuse();
}
void fill_random(std::byte*, uint64_t, uint64_t) {
  refuse();
}

}  // namespace vime::gpu
