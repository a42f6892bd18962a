"""Encode texts into sparse or dense vectors: encoders, Pyserini's encoder interface, vector stores."""
