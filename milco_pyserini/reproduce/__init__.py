"""Reproduction of the paper's tables: measured next to published, each figure with the commands that made it."""
