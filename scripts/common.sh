# Shared by the scripts: packages, configuration and build. Sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    say "installing packages needs root: run this script as root or install sudo"; exit 2
  fi
}

# Installs those of the named Debian packages that are missing, and says which.
ensure_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || { say "apt-get not found; please install: ${missing[*]}"; exit 2; }
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

ensure_build_packages() {
  local packages=(g++ cmake ninja-build ccache libcli11-dev libyaml-cpp-dev libcurl4-openssl-dev nlohmann-json3-dev
                  libspdlog-dev libfmt-dev libboost-dev zlib1g-dev libpcre2-dev libutf8proc-dev doctest-dev)
  # A Python torch carries a whole LibTorch; otherwise the distribution's is used. Its default BLAS is the slow reference one.
  if ! python3 -c 'import torch' 2>/dev/null; then packages+=(libtorch-dev libopenblas0-pthread); fi
  ensure_packages "${packages[@]}"
}

# build <preset> [targets...]; CONFIGURE holds more options for CMake.
CONFIGURE=()
build() {
  local preset=$1; shift
  say "building build/$preset (the first time takes some minutes)"
  cmake --preset "$preset" "${CONFIGURE[@]}" >"build-$preset.log" 2>&1 || { cat "build-$preset.log" >&2; rm -f "build-$preset.log"; exit 1; }
  rm -f "build-$preset.log"
  cmake --build "build/$preset" ${1:+--target "$@"} -j "$(nproc)" >&2
}
