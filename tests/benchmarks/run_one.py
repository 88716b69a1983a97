"""Runs one client once and prints its figures: `python -m tests.benchmarks.run_one NAME SPEC`."""

from __future__ import annotations

import importlib
import json
import sys


def main() -> None:
    """Find the client by its name, measure it, and write one line of JSON."""
    name, spec = sys.argv[1], json.loads(sys.argv[2])
    # Each runs in an environment that has its own packages only.
    module = importlib.import_module(f"tests.benchmarks.clients.{spec['module']}")
    figures = module.CLIENTS[name](spec)
    sys.stdout.write(f"\n{json.dumps(figures)}\n")


if __name__ == "__main__":
    main()
