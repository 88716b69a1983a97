"""The objects there are, by kind, in bytes."""

__all__ = ["SIZES"]

SIZES = {"small": 100_000, "mega": 1_000_000, "huge": 1 << 30}
