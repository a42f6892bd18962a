"""Records in files: which files a path stands for, and which format each of them has."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Generic

from milco_pyserini.corpora.collection import OnBad, RecordT
from milco_pyserini.corpora.jsonl import jsonl_documents, jsonl_queries
from milco_pyserini.corpora.lines import first_line, numbered_lines
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.corpora.trec_topics import trec_queries
from milco_pyserini.corpora.tsv import tsv_documents, tsv_queries
from milco_pyserini.errors import MilcoError

Reader = Callable[[Iterator[tuple[int, bytes]], Callable[[int, str], None]], Iterator[tuple[int, RecordT]]]

_ENDINGS = {".jsonl": "JSONL", ".json": "JSONL", ".ndjson": "JSONL", ".tsv": "TSV", ".trec": "TREC topics"}
_BEIR = {"corpus.jsonl", "queries.jsonl"}
_DOCUMENT_READERS: dict[str, Reader[Document]] = {"JSONL": jsonl_documents, "TSV": tsv_documents}
_QUERY_READERS: dict[str, Reader[Query]] = {
    "JSONL": jsonl_queries,
    "TSV": tsv_queries,
    "TREC topics": trec_queries,
}


class FileSource(Generic[RecordT]):
    """The records of files, one after the other.

    The ending tells a file's format, and its first line where the ending says nothing (.txt, say).
    """

    def __init__(self, files: list[Path], readers: Mapping[str, Reader[RecordT]], field_rule: str) -> None:
        self.field_rule = field_rule
        self._files: list[tuple[Path, Reader[RecordT]]] = [(path, _reader(path, readers)) for path in files]

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, RecordT]]:
        """Yield (file, line number, record); a broken line goes to bad."""
        for path, reader in self._files:
            where = str(path)
            for number, record in reader(numbered_lines(path), partial(bad, where)):
                yield where, number, record


def document_files(path: Path) -> FileSource[Document]:
    """The documents of a JSONL or TSV file, or of every such file in a directory, in sorted order."""
    files = files_of(path, beir="corpus.jsonl")
    rule = "contents, or else title + ' ' + text"
    if all(_format(file) == "TSV" for file in files):
        rule = "title + ' ' + text"
    return FileSource(files, _DOCUMENT_READERS, rule)


def query_files(path: Path) -> FileSource[Query]:
    """The queries of a TSV, JSONL or TREC topic file, or of every such file in a directory."""
    return FileSource(files_of(path, beir="queries.jsonl"), _QUERY_READERS, "text")


def files_of(path: Path, beir: str) -> list[Path]:
    """The file itself; of a directory those files, at any depth, whose ending tells their format.

    A directory in BEIR's layout holds corpus.jsonl and queries.jsonl: there the one named beir is all.
    Raises MilcoError if there is none, or if path can be read only once (a pipe).
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise MilcoError(f"{path} is no regular file: it is read more than once, so save it first")
    found = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    top = {file.name.removesuffix(".gz"): file for file in found if file.parent == path}
    if top.keys() >= _BEIR:
        return [top[beir]]
    files = [file for file in found if _ending(file) in _ENDINGS]
    if not files:
        raise MilcoError(f"no file in {path} ends in {', '.join(_ENDINGS)} (.gz may follow)")
    return files


def _reader(path: Path, readers: Mapping[str, Reader[RecordT]]) -> Reader[RecordT]:
    kind = _format(path)
    if kind not in readers:
        raise MilcoError(f"{path} holds {kind}; what is read here is {' or '.join(readers)}")
    return readers[kind]


def _format(path: Path) -> str:
    known = _ENDINGS.get(_ending(path))
    if known:
        return known
    start = first_line(path).lstrip()
    if start.startswith(b"{"):
        return "JSONL"
    return "TREC topics" if start.lower().startswith(b"<top>") else "TSV"


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()
