"""Experiments on the paper's claims, each `python -m experiments.NAME`: reproduce, latency, judge."""
