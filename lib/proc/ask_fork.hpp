// A question that is put to a fork of this process, because asking it changes a process for good.
#pragma once

#include <functional>
#include <string>

#include "base/deadline.hpp"

namespace vime::proc {

// What `answer` returns in a forked child, which runs no exit handlers or destructors of this process. Blocks until the
// answer has come, at most the timeout; the child has gone when this returns or throws. Error{process_failed} names
// `who`: when nothing came in time, or when the child ended without an answer. Needs a process with one thread.
std::string ask_fork(const std::string& who, milliseconds timeout, const std::function<std::string()>& answer);

}  // namespace vime::proc
