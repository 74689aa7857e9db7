// Work handed to another thread, in order. Any thread pushes; one thread takes.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace vime::engine {

template <typename Task>
class TaskQueue {
 public:
  // Dropped once closed.
  void push(Task task) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

  // Everything pushed so far. With `wait`, blocks until there is something or the queue is closed; then the result may
  // be empty.
  std::vector<Task> take(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return closed_ || !tasks_.empty(); });
    return std::exchange(tasks_, {});
  }

  // What was pushed before can still be taken.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;
  bool closed_ = false;
};

}  // namespace vime::engine
