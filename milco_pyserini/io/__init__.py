"""Files, locks, lines, runs, qrels and downloads: all that touches disk and network, each once."""
