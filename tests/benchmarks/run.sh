#!/usr/bin/env bash
# Measures this package and its peers on one rig, and writes docs/benchmarks.md, which tells how
# to read it. Sets itself up from nothing. `run.sh --help` tells the options.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
exec python -m tests.benchmarks "$@"
