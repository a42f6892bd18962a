"""One module per benchmark, with its languages, sizes, license and citation."""
