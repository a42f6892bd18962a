"""The network: configuration, modeling, pooling, checkpoints, tokenization, fast forward passes."""
