"""Experiments on the paper's claims, each a command: python -m experiments.reproduce, .latency, .judge."""
