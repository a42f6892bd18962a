"""Explain why a document matches: the terms it shares with the query, and where in the texts they come from."""
