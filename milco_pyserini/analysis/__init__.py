"""Analyze vector stores and indexes: sparsity statistics, pruning sweeps."""
