"""The embedded sample: short passages on the same 50 subjects in 13 languages, with queries and qrels."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import milco_pyserini.resources
from milco_pyserini.corpora.local_files import QUERY_READERS, LocalRecords
from milco_pyserini.corpora.readers import BadLine, Lines, jsonl_documents
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.io.qrels import Qrels, read_qrels

# A directory of files, not package data: it is read like any other directory.
ROOT = Path(milco_pyserini.resources.__path__[0]) / "sample"


def sample_documents(languages: Sequence[str]) -> LocalRecords[Document]:
    """Return the passages in some languages."""
    files = [ROOT / "corpus" / f"{code}.jsonl" for code in languages]
    return LocalRecords(files, {"JSONL": _read_passages}, "contents, or else title + ' ' + text")


def sample_queries(languages: Sequence[str]) -> LocalRecords[Query]:
    """Return the queries in some languages."""
    return LocalRecords([ROOT / "topics" / f"{code}.tsv" for code in languages], QUERY_READERS, "text")


def sample_qrels(prefix: str) -> Qrels:
    """Return the qrels whose query and document ids begin with the prefix, which is a language or ""."""
    return {
        query: {document: grade for document, grade in grades.items() if document.startswith(prefix)}
        for query, grades in read_qrels(ROOT / "qrels.txt").items()
        if query.startswith(prefix)
    }


def _read_passages(lines: Lines, bad: BadLine) -> Iterator[tuple[int, Document]]:
    """Read passages; the language, with which each id begins, is their field."""
    for number, passage in jsonl_documents(lines, bad):
        yield number, replace(passage, fields={"lang": passage.id.partition("-")[0]})
