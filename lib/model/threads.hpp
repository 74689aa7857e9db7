// How many threads this process computes with. Call before the first tensor operation, from the main thread.
#pragma once

namespace vime::model {

void limit_threads(int threads);

}  // namespace vime::model
