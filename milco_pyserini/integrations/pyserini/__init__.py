"""Run Pyserini with MILCO: Java started, and MILCO checkpoints known to Pyserini's commands.

from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.integrations.pyserini import start_java

start_java()  # before Pyserini is imported
from pyserini.search.lucene import LuceneImpactSearcher

searcher = LuceneImpactSearcher("indexes/sample.lucene", MilcoQueryEncoder("mini"), min_idf=-1)
"""

from milco_pyserini.integrations.pyserini.java import start_java

__all__ = ["start_java"]
