"""Queries to a run: topics as texts or vectors, any engine's index, TREC and MS MARCO files."""
