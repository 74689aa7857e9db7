#!/usr/bin/env bash
# Compiles everything for NVIDIA GPUs on a machine that has none, so that no first compile happens on one that does:
# torch 2.11 from PyPI without its dependencies, the CUDA toolkit and NCCL as installed. Arguments are targets.
source "$(dirname "$0")/common.sh"

version=2.11.0
torch=build/torch-$version
ensure_build_packages
ensure_packages unzip python3-pip
if [ ! -e "$torch/torch/share/cmake/Torch/TorchConfig.cmake" ]; then
  say "fetching torch $version from PyPI (half a gigabyte)"
  rm -rf "$torch" && mkdir -p "$torch"
  python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$torch" "torch==$version"
  unzip -q "$torch"/torch-*.whl -d "$torch"
  rm "$torch"/torch-*.whl
fi
export VIME_TORCH=$PWD/$torch/torch
build cuda-compile "$@"
