"""Dense encoders: baselines of the paper, and teachers of a contrast whose texts are compared by meaning."""
