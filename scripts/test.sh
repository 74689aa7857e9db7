#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: layers, format, unit and end-to-end tests of the release build.
# Arguments are handed to ctest. scripts/test-sanitizers.sh runs the rooms without LibTorch under sanitizers.
source "$(dirname "$0")/common.sh"

ensure_build_packages
ensure_packages clang-format
scripts/check-layers
scripts/check-format
# What runs on GPUs is compiled wherever its compiler is; its tests are skipped where there is no GPU.
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then CONFIGURE+=(-DVIME_CUDA=ON); fi
build release
say "tests of build/release"
ctest --test-dir build/release --output-on-failure -j "$(nproc)" "$@"
