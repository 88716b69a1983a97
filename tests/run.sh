#!/usr/bin/env bash
# Checks everything: format, lint, types, import contracts, and the whole suite against real
# servers on loopback. Sets itself up from nothing. Arguments go to pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

step() { echo "== $1"; shift; "$@"; }

step "format" ruff format --check .
step "lint" ruff check .
step "types" mypy
step "import contracts" lint-imports
step "tests" python -m pytest --numprocesses auto --dist worksteal "$@"
