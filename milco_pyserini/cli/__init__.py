"""The milco command: one file per subcommand, with its options and the call.

Its process is its own, so importing it applies the settings of torch's threads, before anything loads torch.
"""

from milco_pyserini import threads

threads.apply()
