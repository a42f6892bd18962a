"""One module per benchmark, with its citation."""
