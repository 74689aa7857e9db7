// The JSON lines between driver and agent (agent.hpp lists them) as values. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "base/json.hpp"
#include "proc/agent.hpp"

namespace vime::proc {

// A line longer than this is taken for a broken stream.
constexpr size_t kLongestLine = 16u << 20;

Json start_message(const Command& command);
Command command_from(const Json& message);

// `kind` is never agent_lost, which only the driver's end can know.
Json event_message(const Event& event);
Event event_from(const Json& message);

// One line for the stream. Bytes that are not UTF-8 (log lines may hold any) become the replacement character.
std::string to_line(const Json& message);

// Takes the first whole line from the buffer, without its end.
std::optional<std::string> take_line(std::string& buffer);

}  // namespace vime::proc
