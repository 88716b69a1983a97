"""Benchmarks against the connectors and clients that users would pick instead."""
