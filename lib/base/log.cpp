#include "base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"

namespace vime::log {
namespace {

std::atomic<void (*)(const std::string&)> line_sink{nullptr};

std::mutex tee_mutex;
UniqueFd tee_file;  // guarded by tee_mutex

void write_to_tee(const std::string& line) {
  const std::lock_guard lock(tee_mutex);
  // A full disk must not end a run for the sake of its log; the line is on stderr all the same.
  if (tee_file && ::write(tee_file.get(), line.data(), line.size()) < 0) return;
}

// Hands each formatted line to line_sink, or to stderr in one write so that lines of several threads never mix.
class LineSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    const std::string line(buffer.data(), buffer.size());
    write_to_tee(line);
    if (auto* take_line = line_sink.load()) {
      take_line(line);
    } else {
      std::fwrite(line.data(), 1, line.size(), stderr);
    }
  }
  void flush_() override { std::fflush(stderr); }
};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("vime", std::make_shared<LineSink>());
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>("%H:%M:%S.%e %L %v"));
    made->set_level(spdlog::level::info);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_level(Level least) {
  logger().set_level(to_spdlog(least));
}

void set_sink(void (*sink)(const std::string& line)) {
  line_sink.store(sink);
}

void tee_to(const std::string& path) {
  UniqueFd opened;
  if (!path.empty()) {
    opened = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!opened) throw_errno(ErrorKind::exhausted, "log file " + path);
  }
  const std::lock_guard lock(tee_mutex);
  tee_file = std::move(opened);
}

void write(Level level, std::string_view tag, const std::string& text) {
  logger().log(to_spdlog(level), "{}: {}", tag, text);
}

}  // namespace vime::log
