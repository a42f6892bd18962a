"""The milco command: one file per subcommand, with its options and the call."""
