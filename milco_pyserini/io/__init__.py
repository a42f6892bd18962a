"""Files, locks, lines, runs, qrels and downloads: everything that uses disk or network."""
