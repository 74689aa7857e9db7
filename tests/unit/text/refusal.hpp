// What a refusal says.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"

namespace vime::text {

// "" when the action goes through.
template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::refused);
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace vime::text
