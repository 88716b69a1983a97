"""Measures this package and its peers on one rig: ``bash tests/benchmarks/run.sh --help``."""
