#!/usr/bin/env bash
# The rooms without LibTorch under AddressSanitizer and UBSan. Arguments are handed to ctest.
source "$(dirname "$0")/common.sh"

ensure_build_packages
build asan
say "tests of build/asan"
ctest --test-dir build/asan --output-on-failure -j "$(nproc)" "$@"
