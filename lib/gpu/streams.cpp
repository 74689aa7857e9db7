#include "gpu/streams.hpp"

#include <cuda_runtime_api.h>

#include "gpu/check.hpp"

namespace vime::gpu {

OwnedStream::OwnedStream(Priority priority) {
  int least = 0, greatest = 0;
  VIME_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  VIME_CUDA(
      cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority == Priority::first ? greatest : least));
}
OwnedStream::~OwnedStream() {
  VIME_CUDA_WARN(cudaStreamDestroy(stream_));
}
void OwnedStream::synchronize() const {
  VIME_CUDA(cudaStreamSynchronize(stream_));
}

Event::Event(bool timed) {
  VIME_CUDA(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}
Event::~Event() {
  VIME_CUDA_WARN(cudaEventDestroy(event_));
}
void Event::record(Stream stream) {
  VIME_CUDA(cudaEventRecord(event_, stream));
}
void Event::hold_back(Stream stream) const {
  VIME_CUDA(cudaStreamWaitEvent(stream, event_, 0));
}
bool Event::done() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady) return false;
  check(result, "cudaEventQuery(event_)");
  return true;
}
float Event::since(const Event& earlier) const {
  float milliseconds = 0;
  VIME_CUDA(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
  return milliseconds;
}

}  // namespace vime::gpu
