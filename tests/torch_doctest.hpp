// doctest for test files that use LibTorch, whose headers define CHECK and its relatives too (and abort the process
// instead of failing the test). Include this instead of both.
#pragma once

#include <torch/types.h>

#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_GT
#undef CHECK_GE
#undef CHECK_LT
#undef CHECK_LE

#include <doctest/doctest.h>
