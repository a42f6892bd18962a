"""The pipeline on the embedded sample, next to BM25: every language's queries against every language's passages."""
