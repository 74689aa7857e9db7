// The number of sockets that this process may hold.
#pragma once

namespace vime::http {

// Raises the soft limit of open files to the hard limit, at most 65536, once per process: the usual 1024 would end
// thousands of requests in flight with "Too many open files". Children inherit it.
void raise_descriptor_limit();

}  // namespace vime::http
