#!/usr/bin/env bash
# Trains one script on four object stores that run on this machine; sets itself up from nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../tests/setup.sh"
PYTHONPATH="$root" exec python docs/quickstart/quickstart.py "$@"
