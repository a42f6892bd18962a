"""The paper's tables again: measured beside published, every cell with the command that made it."""
