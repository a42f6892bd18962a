"""Run Pyserini with MILCO: Java started, and MILCO checkpoints known to Pyserini's commands.

from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.integrations.pyserini import start_java

start_java()  # before Pyserini is imported
from pyserini.search.lucene import LuceneImpactSearcher

searcher = LuceneImpactSearcher("indexes/sample.lucene", MilcoQueryEncoder("mini"), min_idf=-1)
"""

from milco_pyserini.integrations.pyserini.arguments import PROG
from milco_pyserini.integrations.pyserini.commands import COMMANDS, is_command, run_pyserini
from milco_pyserini.integrations.pyserini.encoders import is_milco
from milco_pyserini.integrations.pyserini.java import start_java

__all__ = ["COMMANDS", "PROG", "is_command", "is_milco", "run_pyserini", "start_java"]
