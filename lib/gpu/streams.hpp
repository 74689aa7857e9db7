// A stream and an event of the calling thread's GPU, with owners. What is given to a stream is done in order; an event
// marks a place in it.
#pragma once

#include "gpu/stream.hpp"

struct CUevent_st;

namespace vime::gpu {

// Where several kernels wait for a place on the GPU, those of streams with the first priority come first.
enum class Priority { usual, first };

class OwnedStream {
 public:
  explicit OwnedStream(Priority priority = Priority::usual);  // does not wait for the default stream, nor that for it
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  Stream get() const { return stream_; }
  void synchronize() const;  // blocks until everything given to it is done

 private:
  Stream stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream);           // the place behind everything given to it so far
  void hold_back(Stream stream) const;  // what it is given from here on waits for the place recorded last, if any
  bool done() const;                    // whether that place has been reached; true when none was recorded
  // Milliseconds from an earlier event; both are timed and done.
  float since(const Event& earlier) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace vime::gpu
