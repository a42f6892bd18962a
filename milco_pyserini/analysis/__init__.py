"""Measurements over stores, indexes and runs: statistics, pruning sweeps, latency."""
