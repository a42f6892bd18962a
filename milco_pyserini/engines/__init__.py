"""Engines beyond lucene and exact, each with a package of its own; the index registry loads them by name."""
