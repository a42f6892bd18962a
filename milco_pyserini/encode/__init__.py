"""Encode texts into sparse vectors: encoders, Pyserini's encoder interface, vector stores."""
