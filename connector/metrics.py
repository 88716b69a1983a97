"""``connector.metrics.snapshot()``: what this process has asked of object stores so far."""

from providers.counters import Counts, snapshot

__all__ = ["Counts", "snapshot"]
