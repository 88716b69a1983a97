#!/usr/bin/env bash
# Measures this project and its peers against one server, and writes docs/benchmarks.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
exec python -m tests.benchmarks "$@"
