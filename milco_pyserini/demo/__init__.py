"""The whole road on the embedded sample with the embedded model, beside BM25."""
