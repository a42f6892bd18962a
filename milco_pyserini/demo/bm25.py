"""The baseline that everybody knows: BM25, one index a language, each with Anserini's analyzer for it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from milco_pyserini.corpora import Document, Query
from milco_pyserini.index import find_engine
from milco_pyserini.index.bm25 import TextDocuments
from milco_pyserini.io.runs import Run


def load() -> None:
    """Start Java: apart, so that it is not counted as indexing."""
    find_engine("bm25").available()


def build(documents: Iterable[Document], language: str, directory: Path) -> None:
    """Index documents with Anserini's analyzer for language (white space where it has none, as for Swahili)."""
    directory.mkdir(parents=True, exist_ok=True)
    find_engine("bm25").build(TextDocuments(directory, _about(language), documents), directory, threads=1)


def search(queries: Iterable[Query], language: str, directory: Path, hits: int) -> Run:
    """The hits best documents of every query."""
    asked = list(queries)
    searcher = find_engine("bm25").open(directory, {"texts": _about(language)})
    found = searcher.search([query.text for query in asked], hits)
    return {
        query.id: dict(zip(best.docids, best.scores.tolist(), strict=True))
        for query, best in zip(asked, found, strict=True)
    }


def merge(runs: Iterable[Mapping[str, Mapping[str, float]]]) -> Run:
    """The hits of several indexes in one run, by score, though each index has its own statistics.

    On the sample that ranks better than one index of all languages does, whichever analyzer it has.
    """
    merged: Run = {}
    for run in runs:
        for query, hits in run.items():
            merged.setdefault(query, {}).update(hits)
    return merged


def _about(language: str) -> dict:
    return {"language": language, "tokenizer": None}
