"""The embedded sample collection: short passages on the same subjects in many languages, queries, judgements."""

from pathlib import Path

import milco_pyserini.resources
from milco_pyserini.corpora.qrels import Qrels, read_qrels

# Not imported as files of a package: what is read is a directory like any other.
ROOT = Path(milco_pyserini.resources.__path__[0]) / "sample"
ALL = "sample"


def sample_corpora() -> dict[str, Path]:
    """Names and what they stand for: sample is the directory of all languages, sample-ar one file."""
    return _table(ROOT / "corpus", ".jsonl")


def sample_topics() -> dict[str, Path]:
    """The same for the queries."""
    return _table(ROOT / "topics", ".tsv")


def sample_qrels(name: str) -> Qrels:
    """The judgements of sample: all; of sample-ar: those of Arabic queries for Arabic documents.

    Ids begin with their language: ar-q01, ar-01.
    """
    qrels = read_qrels(ROOT / "qrels.txt")
    if name == ALL:
        return qrels
    prefix = f"{name.removeprefix(f'{ALL}-')}-"
    return {
        query: {document: grade for document, grade in grades.items() if document.startswith(prefix)}
        for query, grades in qrels.items()
        if query.startswith(prefix)
    }


def _table(directory: Path, ending: str) -> dict[str, Path]:
    files = sorted(directory.glob(f"*{ending}"))
    return {ALL: directory, **{f"{ALL}-{file.stem}": file for file in files}} if files else {}
