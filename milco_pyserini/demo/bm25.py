"""The baseline that everybody knows: Pyserini's BM25, one index a language, each with Lucene's own analyzer."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from milco_pyserini import jvm
from milco_pyserini.corpora import Document, Query

Run = dict[str, dict[str, float]]


def load() -> None:
    """Start Java and import Pyserini, which takes seconds: apart, so that it is not counted as indexing."""
    jvm.start()
    import pyserini.index.lucene
    import pyserini.search.lucene  # noqa: F401
    from pyserini.pyclass import autoclass

    # Anserini reports every analyzer that it chooses.
    level = autoclass("org.apache.logging.log4j.Level").WARN
    autoclass("org.apache.logging.log4j.core.config.Configurator").setLevel("io.anserini", level)


def build(documents: Iterable[Document], language: str, directory: Path) -> None:
    """Index documents with Anserini's analyzer for language (white space where it has none, as for Swahili)."""
    from pyserini.index.lucene import LuceneIndexer

    indexer = LuceneIndexer(args=["-index", str(directory), "-language", language], threads=1)
    for document in documents:
        indexer.add_doc_dict({"id": document.id, "contents": document.contents})
    indexer.close()


def search(queries: Iterable[Query], language: str, directory: Path, hits: int) -> Run:
    """The hits best documents of every query, with Pyserini's default k1 = 0.9 and b = 0.4."""
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(directory))
    searcher.set_language(language)
    return {query.id: {hit.docid: hit.score for hit in searcher.search(query.text, hits)} for query in queries}


def merge(runs: Iterable[Mapping[str, Mapping[str, float]]]) -> Run:
    """The hits of several indexes in one run, by score, though each index has its own statistics.

    On the sample that ranks better than one index of all languages does, whichever analyzer it has.
    """
    merged: Run = {}
    for run in runs:
        for query, hits in run.items():
            merged.setdefault(query, {}).update(hits)
    return merged
