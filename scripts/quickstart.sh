#!/usr/bin/env bash
# From nothing to a trained policy: installs what is missing, builds into build/release and runs configs/quickstart.yaml.
# Arguments are handed to `vime run`.
source "$(dirname "$0")/common.sh"

ensure_build_packages
build release vime vime_worker
say "build/release/bin/vime run configs/quickstart.yaml $*"
exec build/release/bin/vime run configs/quickstart.yaml "$@"
